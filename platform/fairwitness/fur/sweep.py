"""A whole FUR sweep: studies on one pool, one store, one MLflow parent run, one row in `runs`."""

from __future__ import annotations

import json
import logging
import os
import platform
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from fairwitness import __version__
from fairwitness.config import fingerprint
from fairwitness.errors import FairwitnessError
from fairwitness.fleet.factory import make_pool
from fairwitness.fur.study import Loader, Study, prepare_studies
from fairwitness.fur.study_run import StudyRun, iterate_cells
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.fur.tracking import log_cells
from fairwitness.records.keys import code_revision
from fairwitness.records.redact import redact
from fairwitness.records.run_dir import RunDirectory, describe_changes, run_rows
from fairwitness.records.store import Store
from fairwitness.records.tracker import Tracker

log = logging.getLogger(__name__)

JOB = "fur_sweep"
REPORTED_PACKAGES = ("torch", "transformers", "tokenizers", "ray", "mlflow", "spacy", "numpy")
EXIT_DONE, EXIT_SOME_FAILED, EXIT_INFEASIBLE, EXIT_INTERRUPTED = 0, 1, 3, 130


class Report(NamedTuple):
    """What was reported of a run: the files, the page first; the findings in sentences; whether a rate was chosen."""

    files: tuple[Path, ...]
    findings: tuple[str, ...]
    is_feasible: bool = True


Reporter = Callable[[Path], Report]
"""Makes a report of a run directory."""


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes:
        run: Its directory.
        exit_code: 0 done, 1 some items failed, 3 no rate is feasible for any model and data set.
        counts: Number of tasks by status, and of refused records.
        report: What was reported.
        tracking_uri: Where MLflow has it; None when tracking is off or failed.
        num_models_loaded: How many engines were built.
    """

    run: RunDirectory
    exit_code: int
    counts: Mapping[str, int]
    report: Report
    tracking_uri: str | None
    num_models_loaded: int


def run_sweep(config: FurSweepConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> SweepResult:
    """Runs a sweep, or what is left of it, and reports on it.

    Args:
        config: What to run.
        loaders: Further data sets by name, see `prepare_studies`.
        report: Called at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the run impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    studies = prepare_studies(config, loaders)
    run = RunDirectory(config.output.dir, config.name)
    with run.lock(), run.store() as store:
        return _Sweep(config, studies, run, store).run(report)


class _Sweep:
    def __init__(self, config: FurSweepConfig, studies: Sequence[Study], run: RunDirectory, store: Store) -> None:
        self.config, self.studies, self.dir, self.store = config, studies, run, store
        self.tracker = Tracker(config.tracking, run)
        self.health: dict[str, dict[str, Any]] = {}
        self.row = _run_row(config, studies)
        self.num_models_loaded = 0

    def run(self, report: Reporter) -> SweepResult:
        earlier = run_rows(self.store)
        self._announce(earlier)
        self.dir.write_config(self.config)
        self.row["mlflow_run_id"] = self.tracker.start(self.row, earlier)
        self._save("running")
        try:
            self._measure()
        except KeyboardInterrupt:
            self._end("interrupted", EXIT_INTERRUPTED, "interrupted; start the same job again to go on")
            raise
        except FairwitnessError as error:
            self._end("failed", error.exit_code, str(error))
            raise
        counts = self._counts()
        code = EXIT_SOME_FAILED if counts["failed"] else EXIT_DONE
        self._save("done", exit_code=code)
        reported = report(self.dir.path)
        if code == EXIT_DONE and not reported.is_feasible:
            code = EXIT_INFEASIBLE
            self._save("done", exit_code=code, reason="no rate is feasible; the report names the nearest miss")
        self.tracker.finish("done", [*reported.files, self.dir.config_path], self._metrics())
        uri = self.tracker.uri if self.tracker.is_active else None
        return SweepResult(self.dir, code, counts, reported, uri, self.num_models_loaded)

    def _measure(self) -> None:
        with make_pool(self.config.pool) as pool:
            for study in self.studies:
                part = StudyRun(study, pool, self.store, on_cell=self._log_cell)
                try:
                    part.run()
                finally:
                    self.health |= {f"{study.label}: {name}": _as_json(c) for name, c in part.client.health.items()}
                    self.num_models_loaded = pool.num_builds

    def _log_cell(self, cell_key: str) -> None:
        log_cells(self.tracker, self.dir, [cell_key])

    def _announce(self, earlier: Sequence[Mapping[str, Any]]) -> None:
        if not earlier:
            return
        changes = describe_changes(earlier[-1], self.row)
        log.info("going on with run %s; finished tasks are not run again", self.config.name)
        for change in changes:
            log.warning("changed since the last time: %s", change)

    def _end(self, status: str, code: int, reason: str) -> None:
        self._save(status, exit_code=code, reason=reason)
        self.tracker.finish(status, [self.dir.config_path], self._metrics())

    def _save(self, status: str, *, exit_code: int | None = None, reason: str | None = None) -> None:
        finished = None if status == "running" else datetime.now(UTC)
        counts = self._counts()
        self.row |= {f"num_{name}": counts[name] for name in ("ok", "skipped", "failed", "refused")}
        self.row |= {"status": status, "exit_code": exit_code, "reason": reason, "finished_at": finished}
        self.row["health_json"] = json.dumps(self.health)
        self.store.append("runs", [self.row])
        self.store.flush()

    def _counts(self) -> Counter[str]:
        where = pc.field("cell_key").isin(list(iterate_cells(self.studies)))
        rows = self.store.read("unlearning", ["task_key", "status"], where).to_pylist()
        counts = Counter({row["task_key"]: row["status"] for row in rows}.values())
        data = {study.data.loaded.name: len(study.data.loaded.refused) for study in self.studies}
        counts["refused"] = sum(data.values())
        return counts

    def _metrics(self) -> dict[str, float]:
        return {name: self.row[name] for name in ("num_ok", "num_skipped", "num_failed", "num_refused")}


def _run_row(config: FurSweepConfig, studies: Sequence[Study]) -> dict[str, Any]:
    resolved = redact(config.model_dump(mode="json"))
    now = datetime.now(UTC)
    return {
        "key": f"{config.name}-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
        "name": config.name,
        "job": JOB,
        "created_at": now,
        "config_json": json.dumps(resolved),
        "config_fingerprint": fingerprint(resolved),
        "code_revision": code_revision(),
        "models": list(dict.fromkeys(f"{s.facts.name}@{s.facts.revision}" for s in studies)),
        "data_sets": list(dict.fromkeys(f"{s.data.loaded.name}@{s.data.loaded.data_revision}" for s in studies)),
        "scope_keys": [study.scope_key for study in studies],
        "cell_keys": list(iterate_cells(studies)),
        "environment_json": json.dumps(_environment(studies)),
    }


def _environment(studies: Sequence[Study]) -> dict[str, Any]:
    versions = {"fairwitness": __version__, "python": platform.python_version()}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    notes = {study.facts.name: list(study.facts.notes) for study in studies if study.facts.notes}
    return {"versions": versions, "machine": platform.machine(), "num_cpus": os.cpu_count(), "model_notes": notes}


def _as_json(check: Any) -> dict[str, Any]:
    return {**asdict(check), "ok": check.ok}
