"""What is recorded of one job on a run directory: its row in `runs`, its MLflow run and its exit code."""

from __future__ import annotations

import json
import logging
import os
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fairwitness.config import Config, fingerprint
from fairwitness.errors import FairwitnessError
from fairwitness.experiment.data_set import DataSet
from fairwitness.lm.facts import ModelFacts
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory, describe_changes, describe_harmless, run_rows
from fairwitness.records.store import Store
from fairwitness.records.tracker import Tracker
from fairwitness.redact import redact
from fairwitness.version import __version__

log = logging.getLogger(__name__)

REPORTED_PACKAGES = ("torch", "transformers", "tokenizers", "ray", "mlflow", "spacy", "numpy")
EXIT_DONE, EXIT_SOME_FAILED, EXIT_INFEASIBLE, EXIT_INTERRUPTED = 0, 1, 3, 130
RAY_COPIES = "working_dir_files"
"""Folder in which Ray unpacks the working directories of submitted jobs."""
COUNTED = ("ok", "skipped", "failed", "refused")


class Studied(Protocol):
    """What a job records of each of its studies."""

    @property
    def facts(self) -> ModelFacts:
        """The model."""

    @property
    def data(self) -> DataSet:
        """The data set."""

    @property
    def scope_key(self) -> str:
        """Scope of its rows."""


class Report(NamedTuple):
    """What was reported of a run.

    Attributes:
        files: The files, the page first.
        is_feasible: Whether a rate was chosen.
        cautions: What makes the findings doubtful; the job warns of each.
    """

    files: tuple[Path, ...]
    findings: tuple[str, ...]
    is_feasible: bool = True
    cautions: tuple[str, ...] = ()


Reporter = Callable[[Path], Report]
"""Makes a report of a run directory."""


@dataclass(frozen=True)
class JobResult:
    """What became of a job.

    Attributes:
        exit_code: 0 done, 1 some items failed, 3 no feasible outcome.
        counts: Number of items by status, and of refused records.
        tracking_uri: Where MLflow has it; None when tracking is off or failed.
        num_models_loaded: How many engines were built.
    """

    run: RunDirectory
    exit_code: int
    counts: Mapping[str, int]
    report: Report
    tracking_uri: str | None
    num_models_loaded: int


class JobRun:
    """One job's record, whatever way it ends.

    Use: `with job.started(): ...measure...`, then `job.finish(report)`. The lock of the run must be held.

    Attributes:
        tracker: MLflow, for what is logged on the way.
        row: The job's row of `runs`; the job may add to it before `started`.
        health: Self-checks and health figures; filled by the job, stored with the row.
        num_models_loaded: How many engines were built; filled by the job.
    """

    def __init__(
        self,
        job: str,
        config: Config,
        run: RunDirectory,
        store: Store,
        tracking: TrackingConfig,
        *,
        count: Callable[[], Mapping[str, int]],
        studies: Sequence[Studied] = (),
        is_same: Callable[[Mapping[str, Any]], bool] | None = None,
        is_followup: bool = False,
        code: str | None = None,
        announce: bool = True,
        **columns: Any,
    ) -> None:
        """Prepares; nothing is written yet.

        Args:
            job: Its name, for example `fur_sweep`.
            config: Its configuration.
            run: Where its results are.
            store: The run's store, open for writing.
            tracking: Where MLflow is.
            count: Gives the number of items by status: ok, skipped, failed, refused.
            studies: Their models, data sets and scopes are recorded.
            is_same: Whether this call goes on with an earlier configuration; None: with every one.
            is_followup: Whether the job follows on a run that is there.
            code: Revision of the code that decides its results.
            announce: Off for a job with nothing to go on with, such as an import: places and changes are not said.
            columns: Further columns of `runs`: cell_keys, and those that are not the studies' own.
        """
        self.config, self.dir, self.store = config, run, store
        self.tracker = Tracker(tracking, run)
        self.health: dict[str, Any] = {}
        self.num_models_loaded = 0
        self._count = count
        self._is_same = is_same or (lambda _config: True)
        self._announces = announce
        self.row = _row(job, config, run.name, studies) | {"code_revision": code, "is_followup": is_followup} | columns

    @contextmanager
    def started(self) -> Iterator[None]:
        """Records the start, and how it ends if it ends early.

        Raises:
            FairwitnessError: As the block raised it; the row says `failed` and why.
            KeyboardInterrupt: As the block raised it; the row says `interrupted`.
        """
        rows = run_rows(self.store, self.row["job"])
        earlier = [row for row in rows if self._is_same(json.loads(row["config_json"]))]
        if self._announces:
            self._announce(earlier)
        self.config_path = self.dir.write_config(self.config, self.row["job"] if self.row["is_followup"] else None)
        self.row["mlflow_run_id"] = self.tracker.start(self.row, earlier)
        self._save("running")
        with self._ending():
            yield

    def finish(self, report: Reporter, *, some_failed: bool | None = None) -> JobResult:
        """Records the end and reports.

        `some_failed` makes the exit code 1; None: where items failed.

        Raises:
            FairwitnessError: The report cannot be made; the row says so.
        """
        failed = bool(self.counts()["failed"]) if some_failed is None else some_failed
        code = EXIT_SOME_FAILED if failed else EXIT_DONE
        self._save("done", exit_code=code)
        with self._ending():
            reported = report(self.dir.path)
        for caution in reported.cautions:
            log.warning("%s", caution)
        if code == EXIT_DONE and not reported.is_feasible:
            code = EXIT_INFEASIBLE
            self._save("done", exit_code=code, reason="no rate is feasible; the report names the nearest miss")
        self.tracker.finish("done", [*reported.files, self.config_path], self._metrics())
        uri = self.tracker.uri if self.tracker.is_active else None
        return JobResult(self.dir, code, self.counts(), reported, uri, self.num_models_loaded)

    def counts(self) -> dict[str, int]:
        """Number of items by status."""
        found = self._count()
        return {name: found.get(name, 0) for name in COUNTED}

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self._end("interrupted", EXIT_INTERRUPTED, "interrupted; start the same job again to go on")
            raise
        except FairwitnessError as error:
            self._end("failed", error.exit_code, str(error))
            raise

    def _announce(self, earlier: Sequence[Mapping[str, Any]]) -> None:
        if RAY_COPIES in self.dir.path.resolve().parts:
            log.warning(
                "results go into Ray's copy of the working directory, which ends with the cluster and is another one "
                "after any change of a file: nothing would be resumed; set output.dir to a path that stays, such as "
                "~/results"
            )
        if not earlier:
            log.info("run %s: results go to %s", self.dir.name, self.dir.path)
            return
        changes = describe_changes(earlier[-1], self.row)
        log.info("going on with run %s; finished tasks are not run again", self.dir.name)
        for change in changes:
            log.warning("changed since the last time: %s", change)
        if harmless := describe_harmless(earlier[-1], self.row):
            log.info("changed since the last time, without effect on results: %s", harmless)

    def _end(self, status: str, code: int, reason: str) -> None:
        self._save(status, exit_code=code, reason=reason)
        self.tracker.finish(status, [self.config_path], self._metrics())

    def _save(self, status: str, *, exit_code: int | None = None, reason: str | None = None) -> None:
        finished = None if status == "running" else datetime.now(UTC)
        self.row |= {f"num_{name}": number for name, number in self.counts().items()}
        self.row |= {"status": status, "exit_code": exit_code, "reason": reason, "finished_at": finished}
        self.row["health_json"] = json.dumps(self.health)
        self.store.append("runs", [self.row])
        self.store.flush()

    def _metrics(self) -> dict[str, float]:
        return {f"num_{name}": self.row[f"num_{name}"] for name in COUNTED}


def _row(job: str, config: Config, name: str, studies: Sequence[Studied]) -> dict[str, Any]:
    resolved = redact(config.model_dump(mode="json"))
    now = datetime.now(UTC)
    data = [one.data.loaded for one in studies]
    return {
        "key": f"{name}-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
        "name": name,
        "job": job,
        "created_at": now,
        "config_json": json.dumps(resolved),
        "config_fingerprint": fingerprint(resolved),
        "environment_json": json.dumps(_environment({one.facts.name: one.facts.notes for one in studies})),
        "models": list(dict.fromkeys(f"{one.facts.name}@{one.facts.revision}" for one in studies)),
        "data_sets": list(dict.fromkeys(f"{loaded.name}@{loaded.data_revision}" for loaded in data)),
        "scope_keys": [one.scope_key for one in studies],
        "problem_keys": problem_keys(studies) if studies else None,
        "cell_keys": [],
    }


def problem_keys(studies: Sequence[Studied]) -> list[str]:
    """Keys of all problems that studies measure, each once."""
    return sorted({one.data.problem_key(p) for one in studies for p in one.data.selection.measured})


def _environment(notes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    versions = {"fairwitness": __version__, "python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    shown = {name: list(lines) for name, lines in notes.items() if lines}
    return {"versions": versions, "machine": platform.machine(), "num_cpus": os.cpu_count(), "model_notes": shown}
