"""The baselines job: other measures of faithfulness on a finished sweep, into the same run directory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict

import pyarrow.compute as pc

from fairwitness.fur.baselines.config import FurBaselinesConfig
from fairwitness.fur.baselines.judge_writer import JudgeWriter
from fairwitness.fur.baselines.plan import Baseline
from fairwitness.fur.baselines.sources import Workers, make_baselines
from fairwitness.fur.baselines.study_run import BaselinesRun
from fairwitness.fur.baselines.summary import JOB
from fairwitness.fur.baselines.writers import Rule
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.records.data_set import Loader
from fairwitness.records.job import JobResult, JobRun, Reporter
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store

log = logging.getLogger(__name__)

CACHE_FOLDER = "judge_cache"
"""In the run's folder: replies of models, those of judges too."""


def run_baselines(
    config: FurBaselinesConfig, *, loaders: Mapping[str, Loader], rules: Mapping[str, Rule], report: Reporter
) -> JobResult:
    """Measures the baselines, or what is left of them, and reports.

    Args:
        config: What to measure, and on which run.
        loaders: Further data sets by name, see `prepare_studies`.
        rules: Rules that write changed steps, by name.
        report: Called at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the job impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    run = RunDirectory.at(config.run)
    with run.opened() as store, ExitStack() as stack:
        # Methods of unlearning share the base model's CoTs, and so their baselines.
        opened = {one.study.scope_key: one for one in open_finished(run, store, loaders, config)}
        finished = list(opened.values())
        workers = Workers(stack, finished[0].study.config.pool, run.path / CACHE_FOLDER)
        baselines = make_baselines(config.baselines, [one.study for one in finished], rules, workers.chat_model)
        return _Job(config, finished, baselines, workers, run, store).run(report)


class _Job:
    def __init__(
        self,
        config: FurBaselinesConfig,
        finished: Sequence[FinishedStudy],
        baselines: Sequence[Baseline],
        workers: Workers,
        run: RunDirectory,
        store: Store,
    ) -> None:
        self.config, self.finished, self.baselines, self.store = config, finished, baselines, store
        self.workers = workers
        self.settings = finished[0].study.config
        self.job = JobRun(
            JOB, config, run, store, self.settings.tracking,
            count=self._counts,
            studies=[one.study for one in finished],
            cell_keys=[baseline.key for baseline in baselines],
        )  # fmt: skip

    def run(self, report: Reporter) -> JobResult:
        with self.job.started():
            self._measure()
            self.job.num_models_loaded = self.workers.num_models_loaded
        return self.job.finish(report, is_feasible=True)

    def _measure(self) -> None:
        runs = [
            BaselinesRun(one.study, one.records, self.baselines, self.store, disagreeing=self.config.disagreeing)
            for one in self.finished
        ]
        try:
            for one in runs:
                one.plan()
        finally:
            self._note_spending()
        for one in (one for one in runs if one.works):
            one.measure(self.workers.pool())

    def _note_spending(self) -> None:
        """What the writing models took, as health figures of the job."""
        for baseline in self.baselines:
            if isinstance(baseline.writer, JudgeWriter):
                writer = baseline.writer
                self.job.health[f"{baseline.name}: texts by {writer.config.judge.shown_name}"] = asdict(writer.spent)
                log.info("%s: %s", baseline.name, writer.spent.summary(writer.config.judge.shown_name))

    def _counts(self) -> Counter[str]:
        keys, scopes = ([b.key for b in self.baselines], [one.study.scope_key for one in self.finished])
        where = pc.field("baseline_key").isin(keys) & pc.field("scope_key").isin(scopes)
        return Counter(self.store.read("baselines", ["status"], where)["status"].to_pylist())
