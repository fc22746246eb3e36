"""`fairwitness …`: what is done with a run afterwards, and with the organism. The commands are in `commands/`."""

from __future__ import annotations

import typer

from fairwitness.commands import baselines, judges, methods, organism, paper, published, run, study
from fairwitness.launch.common import set_up

app = typer.Typer(
    help="Measures whether a language model's written reasoning is the reasoning it uses.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(run.app)
app.add_typer(methods.app)
app.add_typer(published.app)
app.add_typer(baselines.app)
app.add_typer(paper.app)
app.add_typer(organism.app, name="organism")
app.add_typer(study.app, name="study")
app.add_typer(judges.app, name="judges")


def main() -> None:
    """Entry point of the console script."""
    set_up()
    app()


if __name__ == "__main__":
    main()
