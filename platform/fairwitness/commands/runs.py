"""Runs: a configuration to begin with, what there is, what a run holds, its report, its tables for other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairwitness.commands.common import RunPath, ended, say
from fairwitness.errors import ConfigError
from fairwitness.jobs import JOBS, Job, resolve

if TYPE_CHECKING:
    from fairwitness.records.config import TrackingConfig
    from fairwitness.records.run_dir import RunDirectory

app = typer.Typer()

EXAMPLE_HEAD = "# fairwitness "
"""How the first line of an example begins; the command's name and what it does follow."""

ExportFormat = Literal["csv", "parquet", "datasets"]


@app.command()
def init(
    example: Annotated[str | None, typer.Argument(help="Name of an example; none lists them.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; by default EXAMPLE.yaml here.")] = None,
    force: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
) -> None:
    """Writes an example configuration to begin with, or lists the examples."""

    def act() -> int:
        if example is None:
            for name, job, title in example_jobs():
                say(f"{name:<16} fairwitness {job.command:<11} {title}")
            return 0
        text, path = example_text(example), out or Path(f"{example}.yaml")
        if path.exists() and not force:
            raise ConfigError(f"{path}: is there already; choose another --out, or replace it with --force")
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
        job = next(job for name, job, _ in example_jobs() if name == example)
        say(f"wrote {path}; start it with: fairwitness {job.command} --config {path}")
        return 0

    raise typer.Exit(ended(act))


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="Folder of runs.", metavar="DIR")] = Path("results")) -> None:
    """Lists the runs of a folder: job, state, models, data sets, and how many items went how."""

    def act() -> int:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for name in ("run", "job", "state", "started (UTC)"):
            table.add_column(name, no_wrap=True)
        table.add_column("models on data sets", overflow="fold")
        table.add_column("ok/skip/fail", no_wrap=True)
        found = sorted(path.parent for path in folder.glob("*/store") if path.is_dir())
        for path in found:
            table.add_row(path.name, *_summary(path))
        if not found:
            raise ConfigError(
                f"{folder}: there is no run here; start one with fairwitness sweep, or name another folder"
            )
        Console().print(table)
        return 0

    raise typer.Exit(ended(act))


@app.command()
def show(run: RunPath) -> None:
    """Shows what a run holds: its jobs, its tables, and what it found."""

    def act() -> int:
        for line in _shown(run):
            say(line)
        return 0

    raise typer.Exit(ended(act))


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
        made = _report(run, items)
        say(f"report: {made.files[0].resolve()}")
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
        from fairwitness.experiment.measure import log_cells
        from fairwitness.records.run_dir import RunDirectory
        from fairwitness.records.tracker import Tracker, track_stored_run

        tracking = _tracking_of(run, uri=uri, experiment=experiment)

        def log(tracker: Tracker, place: RunDirectory, row: Any) -> None:
            measure = resolve(JOBS[row["job"]].measure) if row["job"] in JOBS else resolve(_job_of(run).measure)
            log_cells(tracker, measure.cells(place.store(create=False), row))

        say(f"MLflow run: {track_stored_run(run, tracking, log)}")
        place = RunDirectory.at(run)
        for rows in _followed(place):
            files = [place.report_path, place.csv_path]
            say(f"MLflow run of {rows[-1]['job']}: {track_stored_run(run, tracking, log, files, rows)}")
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
        say(json.dumps(JOBS[job].config_class.model_json_schema(), indent=2, ensure_ascii=False))
        return 0

    if job not in JOBS:
        raise typer.BadParameter(f"{job!r} is no job; known are {', '.join(JOBS)}")
    raise typer.Exit(ended(act))


@app.command()
def columns(
    table: Annotated[
        str | None, typer.Argument(help="A table of the store or a frame of `fw.load`; none: all.")
    ] = None,
) -> None:
    """Prints the data dictionary: every column of the stored tables and of the frames, with units."""

    def act() -> int:
        from fairwitness.analysis.columns import COLUMNS
        from fairwitness_schemas import TABLES, describe

        names = [*TABLES, *(name for name in COLUMNS if name not in TABLES)] if table is None else [table]
        for name in names:
            if name not in TABLES and name not in COLUMNS:
                known = ", ".join(dict.fromkeys((*TABLES, *COLUMNS)))
                raise ConfigError(f"{name!r} is no table; known are {known}")
            if name in TABLES:
                say(describe(TABLES[name]) + "\n")
            if name in COLUMNS:
                say(f"frame {name} (fw.load(RUN).{name})")
                for column, text in COLUMNS[name].items():
                    say(f"  {column}: {text}")
                say("")
        return 0

    raise typer.Exit(ended(act))


def _job_of(run: Path) -> Job:
    """The job that made a run."""
    from fairwitness.records.run_dir import RunDirectory, run_rows

    rows = run_rows(RunDirectory.at(run).store(create=False))
    return JOBS.get(rows[-1]["job"], JOBS["fur_sweep"]) if rows else JOBS["fur_sweep"]


def _followed(run: RunDirectory) -> Iterator[list[dict[str, Any]]]:
    """The jobs that followed on a run, as rows of `runs` for each piece of work, the oldest first."""
    from fairwitness.records.run_dir import run_rows

    store = run.store(create=False)
    for name, job in JOBS.items():
        pieces: dict[str, list[dict[str, Any]]] = {}
        for row in run_rows(store, name):
            if row["is_followup"]:
                work = resolve(job.measure).work(json.loads(row["config_json"]))
                pieces.setdefault(json.dumps(work), []).append(row)
        yield from pieces.values()


def _report(run: Path, items: int | None) -> Any:
    from fairwitness.report.jobs import drafts_report, run_report

    if _job_of(run).command == "drafts":
        return drafts_report(run, max_items=items)
    if items is not None:
        raise ConfigError(f"--items: {run} is no measurement of drafts; leave the option out")
    return run_report(run)


def _summary(path: Path) -> list[str]:
    from fairwitness.errors import StoreError
    from fairwitness.records.run_dir import RunDirectory, run_rows

    try:
        run = RunDirectory.at(path)
        rows = run_rows(run.store(create=False))
        if not rows:
            return ["nothing recorded", *[""] * 4]
        row = rows[-1]
        state = row["status"] if row["status"] != "running" or run.is_locked() else "died"
    except StoreError as error:
        return ["–", "unreadable", "", str(error), ""]
    names = [", ".join(name.partition("@")[0] for name in row[column] or ()) for column in ("models", "data_sets")]
    numbers = ["–" if row[f"num_{name}"] is None else str(row[f"num_{name}"]) for name in ("ok", "skipped", "failed")]
    job = JOBS[row["job"]].command if row["job"] in JOBS else row["job"]
    return [job, state, f"{row['created_at']:%Y-%m-%d %H:%M}", " on ".join(names), "/".join(numbers)]


def _shown(path: Path) -> Iterator[str]:
    from fairwitness.records.run_dir import RunDirectory

    run = RunDirectory.at(path)
    store = run.store(create=False)
    yield f"{run.path}"
    jobs = store.read("runs").sort_by("created_at").to_pylist()
    for row in jobs:
        counts = ", ".join(f"{row[f'num_{name}'] or 0} {name}" for name in ("ok", "skipped", "failed", "refused"))
        reason = f" ({row['reason']})" if row["reason"] else ""
        yield f"{row['created_at']:%Y-%m-%d %H:%M} UTC  {row['job']}: {row['status']}{reason}; {counts}"
    for name in store.table_names:
        if number := store.num_rows(name):
            yield f"table {name}: {number} rows"
    if any(not row["is_followup"] for row in jobs):
        yield from _found(run.path)
    if run.report_path.exists():
        yield f"report: {run.report_path}"


def _found(path: Path) -> Iterator[str]:
    import pandas as pd

    from fairwitness.analysis.frames import FRAMES, Results
    from fairwitness.report.followups import baseline_lines

    if _job_of(path).command == "drafts":
        return
    rates = FRAMES["rates"](Results(path))
    for row in rates[rates["chosen"].fillna(False).astype(bool)].to_dict("records"):
        parts = [
            f"{name} {row[name]:.3f}" for name in ("efficacy", "specificity", "ff_hard_any") if pd.notna(row[name])
        ]
        yield f"{row['model']} on {row['data_set']}: chosen rate {row['lr']:g}: {', '.join(parts)}"
    yield from baseline_lines(path)


def _tracking_of(path: Path, *, uri: str | None, experiment: str | None) -> TrackingConfig:
    """Tracking settings of a finished run, with what the user gives instead."""
    from fairwitness.config import read_settings, validate
    from fairwitness.records.config import TrackingConfig
    from fairwitness.records.run_dir import RunDirectory

    run = RunDirectory.at(path)
    own = read_settings(run.config_path).get("tracking") if run.config_path.exists() else None
    given = {name: value for name, value in (("uri", uri), ("experiment", experiment)) if value is not None}
    found = validate(TrackingConfig, {} if own is None else own, f"{run.config_path}: tracking")
    return validate(TrackingConfig, {**found.model_dump(), **given, "enabled": True}, "options")


def _folder() -> Traversable:
    """The example configurations: part of the package in the wheel, jobs/configs in a checkout."""
    inside = resources.files("fairwitness") / "configs"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "jobs" / "configs"


def example_jobs() -> Iterator[tuple[str, Job, str]]:
    """Name, job and one-line description of every example, by name."""
    commands = {job.command: job for job in JOBS.values()}
    for entry in sorted(_folder().iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".yaml"):
            first = entry.read_text(encoding="utf-8").partition("\n")[0]
            command, _, title = first.removeprefix(EXAMPLE_HEAD).partition(": ")
            yield entry.name.removesuffix(".yaml"), commands[command], title


def example_text(name: str) -> str:
    """An example as it is shipped.

    Raises:
        ConfigError: There is none of that name; names those there are.
    """
    known = {one: None for one, _, _ in example_jobs()}
    if name not in known:
        raise ConfigError(f"{name!r} is no example; there are {', '.join(known)}")
    return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")
