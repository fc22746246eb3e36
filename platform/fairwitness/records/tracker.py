"""MLflow: a parent run per job, a child run per cell. It shows what the store holds; the store needs it for nothing.

Everything goes through one explicit client. When the server cannot be reached the job goes on, and the
same is logged from the store later. Logging twice changes nothing: a run is found again by its tags.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from fairwitness.config import Config, fingerprint
from fairwitness.errors import FairwitnessError
from fairwitness.records.mlflow_client import MlflowWriter, default_uri, expected_errors, flatten
from fairwitness.records.run_dir import RunDirectory
from fairwitness.redact import redact, redact_text

_log = logging.getLogger(__name__)

_STATUS = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "running": "KILLED"}
CELL_TAG, CONTENT_TAG, RUN_TAG = "fairwitness.cell_key", "fairwitness.content", "fairwitness.run_id"
PARENT_TAG = "mlflow.parentRunId"


class TrackingConfig(Config):
    """Where a job is shown. Credentials of a server come from MLFLOW_TRACKING_USERNAME and _PASSWORD or _TOKEN."""

    enabled: bool = True
    """False: nothing is logged to MLflow; results are in the store all the same."""
    uri: str | None = None
    """Tracking URI of MLflow; none: the SQLite file `mlflow.db` in the output directory."""
    experiment: str = Field(default="fairwitness", min_length=1)
    """Name of the experiment; made when it is missing."""
    timeout_s: int = Field(default=10, ge=1, le=600)
    """Seconds that one request to a server may take before tracking is given up for this job."""


class Tracker:
    """Logs one job. After the first failure it warns once and does nothing more.

    Call `start`, then `log_cell` per finished cell, then `finish`, from one process.
    """

    def __init__(self, config: TrackingConfig, run: RunDirectory, *, strict: bool = False) -> None:
        """Makes a tracker; nothing is contacted yet.

        Args:
            config: Where to log.
            run: The run, for its paths and the default SQLite file.
            strict: Raise when MLflow fails instead of warning and going on.
        """
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

        Args:
            run_row: The row of `runs` for this job.
            earlier_rows: Rows of `runs` of earlier starts, see `run_rows`.

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
