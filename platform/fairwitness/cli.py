"""`fairwitness …`: what is done with a run afterwards, and with the organism."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fairwitness.config import load_config
from fairwitness.launch import JOB_CONFIGS, ended, say, set_up

app = typer.Typer(
    help="Measures whether a language model's written reasoning is the reasoning it uses.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
organism_app = typer.Typer(help="The small model whose true reasoning is known.", no_args_is_help=True)
app.add_typer(organism_app, name="organism")

RunPath = Annotated[Path, typer.Argument(help="Run directory, for example results/demo.", metavar="RUN")]
ExportFormat = Literal["csv", "parquet"]


def main() -> None:
    """Entry point of the console script."""
    set_up()
    app()


@app.command()
def report(run: RunPath) -> None:
    """Makes the report of a run again, from what is stored."""

    def act() -> int:
        from fairwitness.report.build import build_report

        say(f"report: {build_report(run).html.resolve()}")
        return 0

    _end(act)


@app.command()
def track(
    run: RunPath,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI; by default the run's own.")] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Name of the MLflow experiment; by default the run's own.")
    ] = None,
) -> None:
    """Logs a run to MLflow, for example because the server was down. Doing it twice changes nothing."""

    def act() -> int:
        from fairwitness.fur.tracking import track_run
        from fairwitness.launch import tracking_of

        run_id = track_run(run, tracking_of(run, uri=uri, experiment=experiment))
        say(f"MLflow run: {run_id}")
        return 0

    _end(act)


@app.command()
def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Folder for the files; made when it is missing.")],
    format: Annotated[ExportFormat, typer.Option(help="csv or parquet.")] = "csv",
) -> None:
    """Writes the tables of a run as files for other tools."""

    def act() -> int:
        from fairwitness.records.export import export as write

        for path in write(run, out, format):
            say(str(path))
        return 0

    _end(act)


@app.command()
def schema(job: Annotated[str, typer.Argument(help="Name of the job, for example fur_sweep.")] = "fur_sweep") -> None:
    """Prints the JSON Schema of a job's configuration, for editors."""

    def act() -> int:
        say(json.dumps(JOB_CONFIGS[job].model_json_schema(), indent=2, ensure_ascii=False))
        return 0

    if job not in JOB_CONFIGS:
        raise typer.BadParameter(f"{job!r} is no job; known are {', '.join(JOB_CONFIGS)}")
    _end(act)


@organism_app.command("train")
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

    _end(act)


@organism_app.command("check")
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

    _end(act)


def _end(action: Callable[[], int]) -> None:
    raise typer.Exit(ended(action))
