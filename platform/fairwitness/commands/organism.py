"""`fairwitness organism …`: the small models whose true reasoning is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairwitness.commands.common import RunPath, ended, say

if TYPE_CHECKING:
    from fairwitness.organisms.thinker.compare import RateLine

MAX_SHOWN = 10

app = typer.Typer(help="The small models whose true reasoning is known.", no_args_is_help=True)

Which = Literal["organism", "thinker"]
WhichOption = Annotated[Which, typer.Option(help="The organism of FUR, or the thinker of the drafts.")]


@app.command("train")
def organism_train(
    which: WhichOption = "organism",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the trained model; by default results/ and its name.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of the recipe; by default the shipped one.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="key=value; may be repeated.")] = None,
) -> None:
    """Trains an organism again. Says first how long it will take."""

    def act() -> int:
        folder = out or Path("results") / which
        _train(which, folder, config, overrides or [])
        say(f"trained model: {folder.resolve()}")
        return 0

    raise typer.Exit(ended(act))


@app.command("check")
def organism_check(
    which: WhichOption = "organism",
    model: Annotated[
        Path | None, typer.Option(help="Folder of a trained organism; by default the shipped one.")
    ] = None,
) -> None:
    """Checks the ground truth by intervening on an organism."""

    def act() -> int:
        from rich.console import Console

        Console().print_json(data=_check(which, model))
        return 0

    raise typer.Exit(ended(act))


@app.command("compare")
def organism_compare(run: RunPath) -> None:
    """Prints the rates of a run of the thinker's drafts beside the planted ones."""

    def act() -> int:
        import pandas as pd
        from rich.console import Console
        from rich.table import Table

        from fairwitness.organisms.thinker.compare import compare

        found = compare(run)
        table = Table("rate", "group", "planted", "measured", "95% interval", "n", "undefined", "holds")
        for line in found.lines:
            table.add_row(*_cells(line))
        Console().print(table)
        for row in found.differing.head(MAX_SHOWN).to_dict("records"):
            say("differs: " + ", ".join(f"{key} {value}" for key, value in row.items() if pd.notna(value)))
        for name in found.passed_over:
            say(f"{name}: passed over, the thinker was not taught it")
        say(f"verdicts as planted: {found.num_agreeing} of {found.num_planted}")
        return 0

    raise typer.Exit(ended(act))


def _cells(line: RateLine) -> tuple[str, ...]:
    undefined = str(line.planted_undefined)
    if line.measured is None:
        return (line.rate, line.group, _percent(line.planted), "–", "–", f"0 of {line.planted_n}", undefined, "no")
    found, num = line.measured.estimate, line.measured.num_all - line.measured.num_undefined
    return (
        *(line.rate, line.group, _percent(line.planted), _percent(found.value)),
        f"{_percent(found.low)} to {_percent(found.high)}",
        f"{num} of {line.planted_n}",
        f"{line.measured.num_undefined} of {undefined}",
        "yes" if line.holds else "no",
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _train(which: Which, folder: Path, config: Path | None, overrides: list[str]) -> None:
    from fairwitness.config import load_config

    def progress(line: str) -> None:
        say(line, stream=sys.stderr)

    if which == "thinker":
        from fairwitness.organisms.thinker import teach as thinker
        from fairwitness.organisms.thinker.train import ThinkerConfig

        thinker.train(folder, load_config(ThinkerConfig, config, overrides), progress)
    else:
        from fairwitness.organisms.train import OrganismConfig, train

        train(folder, load_config(OrganismConfig, config, overrides), progress)


def _check(which: Which, model: Path | None) -> dict[str, float | int]:
    if which == "thinker":
        from fairwitness.organisms.thinker import teach as thinker

        return thinker.check(model)
    from fairwitness.organisms.check import check_organism

    return check_organism(model)
