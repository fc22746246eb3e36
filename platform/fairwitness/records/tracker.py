"""A finished run in MLflow, from what its store holds; what its cells are, each kind of run says itself."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairwitness.config import fingerprint
from fairwitness.errors import FairwitnessError, StoreError
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.redact import redact, redact_text

MAX_METRICS, MAX_PARAMS = 1000, 100
MAX_KEY_CHARS, MAX_VALUE_CHARS = 250, 6000
_NOT_ALLOWED = re.compile(r"[^\w\-. :/]")
_SQLITE = "sqlite:///"


def default_uri(output_dir: Path) -> str:
    """The SQLite file in an output directory."""
    return f"{_SQLITE}{output_dir.resolve() / 'mlflow.db'}"


def expected_errors() -> tuple[type[Exception], ...]:
    """What MLflow raises when a server is away, refuses, or a database or its driver cannot be used."""
    _prepare(timeout_s=10)
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # ImportError: a database without its driver; ValueError: an address that is none.
    return (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError, ValueError)


class MlflowWriter:
    """One experiment of one tracking server, through an explicit client."""

    def __init__(self, uri: str, experiment: str, timeout_s: int) -> None:
        """Connects, and makes the experiment when it is missing; a time limit in the environment wins."""
        _prepare(timeout_s)
        from mlflow import MlflowClient

        location = _prepare_sqlite(uri)
        self._client = MlflowClient(tracking_uri=uri)
        self._experiment_id = self._experiment(experiment, location)

    def first_alive(self, run_ids: Iterable[str]) -> str | None:
        """The first of the runs that is there, in this experiment and not deleted."""
        from mlflow.exceptions import MlflowException

        for run_id in run_ids:
            try:
                info = self._client.get_run(run_id).info
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                continue
            if info.lifecycle_stage == "active" and info.experiment_id == self._experiment_id:
                return run_id
        return None

    def find(self, tags: Mapping[str, str]) -> str | None:
        """A run of the experiment that has all the tags and is not deleted."""
        condition = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        runs = self._client.search_runs([self._experiment_id], condition, max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def create(self, name: str, tags: Mapping[str, str]) -> str:
        """A new run, running; returns its id."""
        run = self._client.create_run(self._experiment_id, run_name=name[:MAX_KEY_CHARS], tags=dict(tags))
        return str(run.info.run_id)

    def reopen(self, run_id: str) -> None:
        """Marks a run as running again."""
        self._client.update_run(run_id, status="RUNNING")

    def end(self, run_id: str, status: str) -> None:
        """Ends a run with a status of MLflow's: FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run_id, status)

    def delete(self, run_id: str) -> None:
        """Moves a run to the bin."""
        self._client.delete_run(run_id)

    def tags(self, run_id: str) -> Mapping[str, str]:
        """The tags of a run."""
        return dict(self._client.get_run(run_id).data.tags)

    def metrics(self, run_id: str) -> Mapping[str, float]:
        """The last value of every metric of a run."""
        return dict(self._client.get_run(run_id).data.metrics)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Sets tags, overwriting old values."""
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_params(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Logs nested values under dotted names. A parameter that the run has already keeps its first value."""
        from mlflow.entities import Param

        known = self._client.get_run(run_id).data.params
        params = [Param(_name(key), text[:MAX_VALUE_CHARS]) for key, text in flatten(values)]
        params = [param for param in params if param.key not in known]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(run_id, params=params[start : start + MAX_PARAMS])

    def log_metrics(self, run_id: str, values: Sequence[tuple[str, float, int]]) -> None:
        """Logs (name, value, step) in batches; values that are not finite break MLflow's pages and are left out."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        finite = [Metric(_name(name), float(v), now_ms, step) for name, v, step in values if math.isfinite(v)]
        for start in range(0, len(finite), MAX_METRICS):
            self._client.log_batch(run_id, metrics=finite[start : start + MAX_METRICS])

    def log_artifact(self, run_id: str, path: Path, place: str | None) -> None:
        """Adds a file, or the files of a folder, under a folder of the run's artifacts."""
        if path.is_dir():
            self._client.log_artifacts(run_id, str(path), place)
        else:
            self._client.log_artifact(run_id, str(path), place)

    def _experiment(self, name: str, location: str | None) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            other = self._client.get_experiment_by_name(name)
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or other is None:
                raise
            return str(other.experiment_id)


def _prepare(timeout_s: int) -> None:
    """Sets what MLflow reads from the environment only, unless the user has; must come before its import."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(timeout_s))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its notice of a retry shows the whole address, credentials in the query included.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def _prepare_sqlite(uri: str) -> str | None:
    """Makes the folder of a SQLite file; returns where artifacts go beside it, None for a server (it decides)."""
    if not uri.startswith(_SQLITE):
        return None
    folder = Path(uri.removeprefix(_SQLITE)).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "mlartifacts").as_uri()


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as (dotted name, text); what is not text is JSON."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            pairs += flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)))
    return pairs


def _name(text: str) -> str:
    return _NOT_ALLOWED.sub("_", text)[:MAX_KEY_CHARS]


_log = logging.getLogger(__name__)

_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "running": "KILLED"}
CELL_TAG, CONTENT_TAG, RUN_TAG = "fairwitness.cell_key", "fairwitness.content", "fairwitness.run_id"
PARENT_TAG = "mlflow.parentRunId"


class Tracker:
    """Logs one job. After the first failure it warns once and does nothing more.

    Call `start`, then `log_cell` per finished cell, then `finish`, from one process.
    """

    def __init__(self, config: TrackingConfig, run: RunDirectory, *, strict: bool = False) -> None:
        """Contacts nothing yet; `strict` raises when MLflow fails instead of warning and going on."""
        self.uri = config.uri or default_uri(run.output_dir)
        self.run_id: str | None = None
        self._config, self._run, self._strict = config, run, strict
        self._writer: MlflowWriter | None = None
        self._failed = not config.enabled

    @property
    def is_active(self) -> bool:
        """Whether tracking is on and has not failed."""
        return not self._failed

    def start(self, run_row: Mapping[str, Any], earlier_rows: Sequence[Mapping[str, Any]] = ()) -> str | None:
        """Opens the parent run, or continues the one of an earlier start of the same run.

        `earlier_rows` are the rows of `runs` of earlier starts, see `run_rows`.

        Returns:
            The id of the parent run, for `mlflow_run_id`; None when tracking is off or failed.

        Raises:
            FairwitnessError: MLflow failed, and the tracker is strict.
        """
        self._guarded(lambda: self._start(run_row, [*earlier_rows, run_row]))
        return self.run_id

    def log_cell(
        self,
        cell_key: str,
        params: Mapping[str, Any],
        metrics_by_iteration: Mapping[int, Mapping[str, float]],
        totals: Mapping[str, float] | None = None,
    ) -> None:
        """Logs one cell as a child run; the same cell with the same content again changes nothing.

        A cell whose content changed, because a resumed job added to it, replaces its old child run.

        Args:
            cell_key: Key of the cell.
            params: What the cell is.
            metrics_by_iteration: Metrics per iteration, which is the step in MLflow. NaN and infinity are left out.
            totals: Metrics of the whole cell, shown as `cell/<name>`.

        Raises:
            FairwitnessError: MLflow failed, and the tracker is strict.
        """
        self._guarded(lambda: self._log_cell(cell_key, params, metrics_by_iteration, totals or {}))

    def finish(self, status: str, artifacts: Sequence[Path] = (), metrics: Mapping[str, float] | None = None) -> None:
        """Adds files and ends the parent run.

        Args:
            status: As in `runs`: done | failed | interrupted.
            artifacts: Files and folders; missing ones are left out. Paths inside the run directory keep their place.
            metrics: Figures of the whole job, for example num_ok.

        Raises:
            FairwitnessError: MLflow failed, and the tracker is strict.
        """
        self._guarded(lambda: self._finish(status, artifacts, metrics or {}))

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except expected_errors() as error:
            self._failed = True
            reason = redact_text(" ".join(str(error).split()))[:500]
            message = f"MLflow at {redact_text(self.uri)} cannot be used ({reason})"
            if self._strict:
                raise FairwitnessError(f"{message}; start the server or give another tracking URI") from error
            _log.warning(
                "%s; the job goes on, and its results are in the store. Log them later with: fairwitness track %s",
                message,
                self._run.path,
            )

    def _start(self, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        writer = self._writer = MlflowWriter(self.uri, self._config.experiment, self._config.timeout_s)
        latest_first = list(reversed(rows))
        found = writer.first_alive(str(one["mlflow_run_id"]) for one in latest_first if one.get("mlflow_run_id"))
        for one in latest_first:
            found = found or writer.find({RUN_TAG: str(one["key"])})
        tags = {"fairwitness.job": str(row["job"]), "fairwitness.run_directory": str(self._run.path.resolve())}
        if row.get("code_revision"):
            tags["fairwitness.code_revision"] = str(row["code_revision"])
        self.run_id = found or writer.create(str(row["name"]), {RUN_TAG: str(row["key"])})
        writer.reopen(self.run_id)
        writer.log_params(self.run_id, redact(json.loads(row["config_json"])))
        writer.set_tags(self.run_id, tags)

    def _log_cell(
        self,
        cell_key: str,
        params: Mapping[str, Any],
        metrics_by_iteration: Mapping[int, Mapping[str, float]],
        totals: Mapping[str, float],
    ) -> None:
        writer, parent = self._started()
        shown = redact(dict(params))
        metrics = [(name, float(v), step) for step, row in metrics_by_iteration.items() for name, v in row.items()]
        metrics += [(f"cell/{name}", float(value), 0) for name, value in totals.items()]
        content = fingerprint([flatten(shown), sorted(metrics)])
        found = writer.find({PARENT_TAG: parent, CELL_TAG: cell_key})
        if found and writer.tags(found).get(CONTENT_TAG) == content:
            return
        if found:
            writer.delete(found)
        child = writer.create(_cell_name(cell_key, params), {PARENT_TAG: parent, CELL_TAG: cell_key})
        writer.log_params(child, shown)
        writer.log_metrics(child, metrics)
        writer.end(child, "FINISHED")
        writer.set_tags(child, {CONTENT_TAG: content})

    def _finish(self, status: str, artifacts: Sequence[Path], metrics: Mapping[str, float]) -> None:
        writer, parent = self._started()
        wanted = {name: value for name, value in metrics.items() if writer.metrics(parent).get(name) != value}
        writer.log_metrics(parent, [(name, value, 0) for name, value in wanted.items()])
        for path in artifacts:
            if path.exists():
                writer.log_artifact(parent, path, self._place_of(path))
        writer.end(parent, _STATUS[status])

    def _started(self) -> tuple[MlflowWriter, str]:
        if self._writer is None or self.run_id is None:
            raise RuntimeError("Tracker.start comes first")
        return self._writer, self.run_id

    def _place_of(self, path: Path) -> str | None:
        try:
            place = path.resolve().relative_to(self._run.path.resolve())
        except ValueError:
            return None
        folder = place if path.is_dir() else place.parent
        return None if folder == Path() else folder.as_posix()


def _cell_name(cell_key: str, params: Mapping[str, Any]) -> str:
    names = ("model", "data_set", "source", "intervention", "insertion_type", "method")
    shown = [f"{params[name]}" for name in names if params.get(name) is not None]
    if params.get("lora_rank") is not None:
        shown.append(f"rank={params['lora_rank']}")
    if params.get("lr") is not None:
        shown.append(f"lr={params['lr']:g}")
    return redact_text(" ".join(shown) or cell_key)


LogCells = Callable[[Tracker, RunDirectory, Mapping[str, Any]], None]
"""Logs the cells of a run, given the latest row of `runs`."""


def track_stored_run(
    run_path: Path | str,
    config: TrackingConfig,
    log_cells: LogCells,
    artifacts: Sequence[Path] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
) -> str | None:
    """Logs a job on a run from its store: everything that it would have logged. Doing it twice changes nothing.

    `artifacts` are files to add; None for the resolved configuration, the report and its tables. `rows` are the rows of
    `runs` of one piece of work, the oldest first; None for those of the job that made the run.

    Returns:
        The id of the parent run; None when tracking is not enabled.

    Raises:
        StoreError: There is no run, it cannot be read, or a job is writing it now.
        FairwitnessError: MLflow cannot be used.
    """
    run = RunDirectory.at(run_path)
    if run.is_locked():
        raise StoreError(f"{run.path}: a job is writing this run and tracks it itself; wait for it to end")
    rows = run_rows(run.store(create=False)) if rows is None else rows
    if not rows:
        raise StoreError(f"{run.path}: no run is recorded here; start the job again")
    tracker = Tracker(config, run, strict=True)
    tracker.start(rows[-1], rows[:-1])
    log_cells(tracker, run, rows[-1])
    counts = {name: rows[-1][name] for name in ("num_ok", "num_skipped", "num_failed", "num_refused")}
    files = [run.config_path, run.report_path, run.csv_path] if artifacts is None else artifacts
    tracker.finish(rows[-1]["status"], files, {name: value for name, value in counts.items() if value is not None})
    return tracker.run_id
