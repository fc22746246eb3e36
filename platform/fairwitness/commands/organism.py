"""`fairwitness organism …`: the small model whose true reasoning is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fairwitness.config import load_config
from fairwitness.launch.common import ended, say

app = typer.Typer(help="The small model whose true reasoning is known.", no_args_is_help=True)


@app.command("train")
def organism_train(
    out: Annotated[Path, typer.Option(help="Folder for the trained model.")] = Path("results/organism"),
    config: Annotated[Path | None, typer.Option(help="YAML file of the recipe; by default the shipped one.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
) -> None:
    """Trains the organism again. Says first how long it will take."""

    def act() -> int:
        from fairwitness.organisms.train import OrganismConfig, train

        recipe = load_config(OrganismConfig, config, overrides or [])
        train(out, recipe, lambda line: say(line, stream=sys.stderr))
        say(f"trained model: {out.resolve()}")
        return 0

    raise typer.Exit(ended(act))


@app.command("check")
def organism_check(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a trained organism; by default the shipped one.")
    ] = None,
) -> None:
    """Measures accuracy and checks the ground truth by intervening on the organism."""

    def act() -> int:
        from fairwitness.organisms.check import check_organism

        Console().print_json(data=check_organism(model))
        return 0

    raise typer.Exit(ended(act))
