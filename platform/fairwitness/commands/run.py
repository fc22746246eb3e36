"""What is done with a finished run: report, track, export; and the schema of a job's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairwitness.errors import ConfigError
from fairwitness.launch.common import ended, say
from fairwitness.launch.jobs import JOB_CONFIGS

app = typer.Typer()

RunPath = Annotated[Path, typer.Argument(help="Run directory, for example results/demo.", metavar="RUN")]
ExportFormat = Literal["csv", "parquet", "datasets"]


@app.command()
def report(
    run: RunPath,
    items: Annotated[
        int | None,
        typer.Option(min=0, help="Of a measurement of drafts: most continuations shown in full; by default 200."),
    ] = None,
) -> None:
    """Makes the report of a run again, from what is stored."""

    def act() -> int:
        from fairwitness.report.build import build_report
        from fairwitness.report.drafts.page import build_draft_report

        if _is_of_drafts(run):
            made = build_draft_report(run, **({} if items is None else {"max_items": items})).html
        elif items is None:
            made = build_report(run).html
        else:
            raise ConfigError(f"--items: {run} is no measurement of drafts; leave the option out")
        say(f"report: {made.resolve()}")
        return 0

    raise typer.Exit(ended(act))


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
        from fairwitness.drafts.cells import track_draft_run
        from fairwitness.fur.tracking import track_run
        from fairwitness.launch.common import tracking_of

        log = track_draft_run if _is_of_drafts(run) else track_run
        run_id = log(run, tracking_of(run, uri=uri, experiment=experiment))
        say(f"MLflow run: {run_id}")
        return 0

    raise typer.Exit(ended(act))


@app.command()
def export(
    run: RunPath,
    out: Annotated[Path, typer.Argument(help="Folder for the files; made when it is missing.")],
    format: Annotated[
        ExportFormat, typer.Option(help="csv, parquet, or datasets (Hugging Face, for load_from_disk).")
    ] = "csv",
) -> None:
    """Writes the tables of a run as files for other tools."""

    def act() -> int:
        from fairwitness.records.export import export as write

        for path in write(run, out, format):
            say(str(path))
        return 0

    raise typer.Exit(ended(act))


@app.command()
def schema(job: Annotated[str, typer.Argument(help="Name of the job, for example fur_sweep.")] = "fur_sweep") -> None:
    """Prints the JSON Schema of a job's configuration, for editors."""

    def act() -> int:
        say(json.dumps(JOB_CONFIGS[job].model_json_schema(), indent=2, ensure_ascii=False))
        return 0

    if job not in JOB_CONFIGS:
        raise typer.BadParameter(f"{job!r} is no job; known are {', '.join(JOB_CONFIGS)}")
    raise typer.Exit(ended(act))


def _is_of_drafts(path: Path) -> bool:
    from fairwitness.drafts.config import JOB
    from fairwitness.records.run_dir import RunDirectory, run_rows

    rows = run_rows(RunDirectory.at(path).store(create=False))
    return bool(rows) and rows[-1]["job"] == JOB
