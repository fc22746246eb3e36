"""A whole FUR sweep: studies on one pool, one store, one MLflow parent run, one row in `runs`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from fairwitness.fleet.factory import make_pool
from fairwitness.fur.study import Study, prepare_studies
from fairwitness.fur.study_run import StudyRun, iterate_cells
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.fur.tracking import log_cells
from fairwitness.records.data_set import Loader
from fairwitness.records.job import JobRun, Report, Reporter
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store

log = logging.getLogger(__name__)

JOB = "fur_sweep"


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
        self.job = JobRun(
            JOB, config, run, store, config.tracking,
            count=self._counts,
            notes={study.facts.name: study.facts.notes for study in studies},
            models=list(dict.fromkeys(f"{s.facts.name}@{s.facts.revision}" for s in studies)),
            data_sets=list(dict.fromkeys(f"{s.data.loaded.name}@{s.data.loaded.data_revision}" for s in studies)),
            scope_keys=[study.scope_key for study in studies],
            cell_keys=list(iterate_cells(studies)),
        )  # fmt: skip
        self.num_models_loaded = 0

    def run(self, report: Reporter) -> SweepResult:
        with self.job.started():
            self._measure()
        code, reported = self.job.finish(report)
        tracker = self.job.tracker
        uri = tracker.uri if tracker.is_active else None
        return SweepResult(self.dir, code, self.job.counts(), reported, uri, self.num_models_loaded)

    def _measure(self) -> None:
        with make_pool(self.config.pool) as pool:
            for study in self.studies:
                part = StudyRun(study, pool, self.store, on_cell=self._log_cell)
                try:
                    part.run()
                finally:
                    found = {f"{study.label}: {name}": _as_json(c) for name, c in part.client.health.items()}
                    self.job.health |= found
                    self.num_models_loaded = pool.num_builds

    def _log_cell(self, cell_key: str) -> None:
        log_cells(self.job.tracker, self.dir, [cell_key])

    def _counts(self) -> Counter[str]:
        where = pc.field("cell_key").isin(list(iterate_cells(self.studies)))
        rows = self.store.read("unlearning", ["task_key", "status"], where).to_pylist()
        counts = Counter({row["task_key"]: row["status"] for row in rows}.values())
        data = {study.data.loaded.name: len(study.data.loaded.refused) for study in self.studies}
        counts["refused"] = sum(data.values())
        return counts


def _as_json(check: Any) -> dict[str, Any]:
    return {**asdict(check), "ok": check.ok}
