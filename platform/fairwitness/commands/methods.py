"""`fairwitness overlap`: do the methods of a run change the same answers?"""

from __future__ import annotations

import typer

from fairwitness.commands.run import RunPath
from fairwitness.errors import StoreError
from fairwitness.launch.common import ended, say

app = typer.Typer()


@app.command()
def overlap(run: RunPath) -> None:
    """Prints, per LoRA rank, how many problems change their answer under full FF2 too, at the chosen rates."""

    def act() -> int:
        from fairwitness.analysis.frames import Results
        from fairwitness.analysis.overlap import method_groups
        from fairwitness.report.followups import overlap_lines

        results = Results(run)
        groups = method_groups(results.panels, results.run.rng)
        if not groups:
            raise StoreError(f"{run}: the run has one method; give the sweep several under `methods`")
        for line in overlap_lines(groups):
            say(line)
        say("The first method is the one named first. Problems: those that count under both, each at its chosen rate.")
        return 0

    raise typer.Exit(ended(act))
