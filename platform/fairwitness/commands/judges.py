"""`fairwitness judges …`: what judges found, and whether they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.common import ended, say

app = typer.Typer(help="Judges of a run: whether they agree.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `agree` a command of its own name."""


@app.command()
def agree(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A run directory; or two JSON-lines files of judgements as FUR's authors published them.",
            metavar="RUN | FILE FILE",
        ),
    ],
) -> None:
    """Cohen's kappa of all pairs of judges of a run, or of two files."""

    def act() -> int:
        from fairwitness.launch.agree import agreement_lines

        for line in agreement_lines(paths):
            say(line)
        return 0

    raise typer.Exit(ended(act))
