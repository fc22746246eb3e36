"""The few things we ask of MLflow, with its limits kept. mlflow is imported when first used: that takes seconds."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
        """Connects, and makes the experiment when it is missing.

        Args:
            uri: Tracking URI.
            experiment: Name of the experiment.
            timeout_s: Limit of one request; a value the user set in the environment wins.
        """
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
