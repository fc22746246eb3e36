"""`fairwitness baselines`: other measures of faithfulness beside ff-hard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairwitness.launch.common import ended, say

app = typer.Typer()


@app.command()
def baselines(
    run: Annotated[Path, typer.Argument(help="Run directory, for example results/demo.", metavar="RUN")],
) -> None:
    """Prints the baselines of a run beside its ff-hard, a line each."""

    def act() -> int:
        from fairwitness.report.followups import baseline_lines

        lines = baseline_lines(run)
        for line in lines or [f"{run}: no baselines were measured; run jobs/fur_baselines.py"]:
            say(line)
        return 0

    raise typer.Exit(ended(act))
