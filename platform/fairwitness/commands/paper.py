"""`fairwitness paper`: the tables and figures of the FUR paper, from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.common import ended, say

app = typer.Typer()


@app.command()
def paper(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, for example results/demo.", metavar="RUN…")],
    out: Annotated[Path, typer.Option(help="Folder for the page, the CSV files and the drawings.")],
) -> None:
    """Makes the tables and figures of the FUR paper from one or several runs, as a page, CSV and SVG."""

    def act() -> int:
        from fairwitness.report.paper.build import build_paper

        paths = build_paper(runs, out)
        for name, why in paths.missing.items():
            say(f"{name.replace('_', ' ')}: not in these runs: {why}")
        say(f"tables: {len(paths.csv)}, drawings: {len(paths.figures)}")
        say(f"paper report: {paths.html.resolve()}")
        return 0

    raise typer.Exit(ended(act))
