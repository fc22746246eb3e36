"""`fairwitness …`: every job by its command, and what is done with runs. Nothing is imported before it is used."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fairwitness.commands import judges, organism, raters, results, runs
from fairwitness.commands.common import set_up
from fairwitness.commands.start import command_of
from fairwitness.jobs import JOBS
from fairwitness.version import __version__

app = typer.Typer(
    help="Measures whether a language model's written reasoning is the reasoning it uses.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _job in JOBS.values():
    app.command(_job.command, help=_job.help, rich_help_panel="Jobs")(command_of(_job))
app.add_typer(runs.app)
app.add_typer(results.app)
app.add_typer(organism.app, name="organism")
app.add_typer(raters.app, name="raters")
app.add_typer(judges.app, name="judges")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fairwitness {__version__}\n")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Entry point of the console script."""
    set_up()
    app()


if __name__ == "__main__":
    main()
