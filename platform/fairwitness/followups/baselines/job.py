"""The baselines job: other measures of faithfulness on a finished sweep, into the same run directory."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, NamedTuple

import pyarrow.compute as pc

from fairwitness.analysis.runs import BASELINES_JOB as JOB
from fairwitness.chains.client import engine_spec
from fairwitness.chains.cots import COTS_PER_ITEM, QUESTIONS_PER_ITEM, CotRecord, Row
from fairwitness.chains.items import AnswerItem, CotItem, CotRequest, Question
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, JobRun, Reporter
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.followups.baselines.cc_shap import ShapItem
from fairwitness.followups.baselines.changes import NotAltered
from fairwitness.followups.baselines.config import CcShapConfig, FurBaselinesConfig
from fairwitness.followups.baselines.plan import (
    DISAGREEING,
    NO_COT,
    PURPOSES,
    Baseline,
    Work,
    failed_row,
    measured_row,
    not_altered_row,
    plan_problem,
    row_key,
    step_indices,
    whole_problem_row,
)
from fairwitness.followups.baselines.sources import Workers, make_baselines
from fairwitness.followups.baselines.writers import JudgeWriter, ProblemTexts, Rule
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.fur.schedule import DISAGREE, LATER
from fairwitness.fur.study import FurStudy
from fairwitness.records.progress import Progress
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store

PROBLEMS_PER_SHAP_ITEM = 1
"""One problem already is a batch of hundreds of masked prompts."""


class Batch(NamedTuple):
    """Measurements of one kind that go to a worker together."""

    works: tuple[Work, ...]
    item: AnswerItem | CotItem | ShapItem


class BaselinesRun:
    """Owns the progress of all baselines on one study."""

    def __init__(
        self,
        study: FurStudy,
        records: Sequence[CotRecord],
        baselines: Sequence[Baseline],
        store: Store,
        *,
        disagreeing: bool,
    ) -> None:
        """Prepares; nothing is run yet.

        Args:
            study: What the sweep measured.
            records: The base model on its problems.
            baselines: What to measure.
            store: Where rows go.
            disagreeing: Whether problems whose direct and CoT answers differ are measured too.
        """
        self.study, self.records, self.baselines, self.store = study, records, baselines, store
        self.disagreeing = disagreeing
        self.works: list[Work] = []

    def plan(self) -> None:
        """Gets the texts, decides what is measured, and stores the rows of what is not.

        Raises:
            FairwitnessError: A source of texts cannot be used at all.
            StoreError: Rows cannot be written.
        """
        for baseline in self.baselines:
            where = (pc.field("baseline_key") == baseline.key) & (pc.field("status") == "failed")
            failed = set(self.store.read("baselines", ["key"], where)["key"].to_pylist())
            wanted = [record for record in self.records if self._is_wanted(baseline, record, failed)]
            for problem in self._with_texts(baseline, wanted):
                self._plan_problem(baseline, problem)
        self.store.flush()

    def measure(self, pool: Pool) -> None:
        """Measures what was planned.

        Raises:
            ModelError: The model cannot be loaded.
            StoreError: Rows cannot be written.
        """
        if not self.works:
            return
        batches = list(batches_of(self.study, self.works))
        weight = sum(work.weight for work in self.works)
        with Progress(len(self.works), f"{self.study.label}: baselines", weight=weight) as progress:
            for outcome in pool.map(engine_spec(self.study), (batch.item for batch in batches)):
                batch = batches[outcome.index]
                rows = _rows(self.study, batch, outcome)
                self.store.append("baselines", rows)
                progress.count((str(row["status"]) for row in rows), weight=sum(work.weight for work in batch.works))
        self.store.flush()

    def _is_wanted(self, baseline: Baseline, record: CotRecord, failed: set[str]) -> bool:
        """Whether something of the problem is still to be measured; a problem that is not measured gets its row."""
        if record.status != "ok" or not record.steps:
            status = record.status if record.status != "ok" else "skipped"
            reason = record.reason or "the CoT has no cot_step"
            self._store_whole(baseline, record, NO_COT, status, reason)
            return False
        if row_key(self.study, baseline, record.problem, NO_COT) in failed:
            self._store_whole(baseline, record, NO_COT, "skipped", LATER)
        if not record.agree and not self.disagreeing:
            self._store_whole(baseline, record, DISAGREEING, "skipped", DISAGREE)
            return False
        return any(not self._is_finished(baseline, record, i) for i in step_indices(baseline.config, record))

    def _with_texts(self, baseline: Baseline, records: Sequence[CotRecord]) -> Iterator[ProblemTexts]:
        if baseline.writer is None:
            return (ProblemTexts(record, {}) for record in records)
        return baseline.writer.write(self.study, records, PURPOSES[baseline.name])

    def _plan_problem(self, baseline: Baseline, problem: ProblemTexts) -> None:
        rows = []
        for number, stray in enumerate(problem.strays):
            rows.append(not_altered_row(self.study, baseline, problem.record, stray, f"stray {number}"))
        for one in plan_problem(self.study, baseline, problem.record, problem.texts):
            if self._is_finished(baseline, problem.record, one.cot_step_index):
                continue
            if isinstance(one, NotAltered):
                rows.append(not_altered_row(self.study, baseline, problem.record, one, one.cot_step_index))
            else:
                self.works.append(one)
        self.store.append("baselines", rows)

    def _store_whole(self, baseline: Baseline, record: CotRecord, place: str, status: str, reason: str) -> None:
        row = whole_problem_row(self.study, baseline, record, place, status=status, reason=reason)
        if row["key"] not in self.store.finished_keys("baselines"):
            self.store.append("baselines", [row])

    def _is_finished(self, baseline: Baseline, record: CotRecord, index: int | None) -> bool:
        return row_key(self.study, baseline, record.problem, index) in self.store.finished_keys("baselines")


def batches_of(study: FurStudy, works: Sequence[Work]) -> Iterator[Batch]:
    """All measurements in batches of one kind and similar length, the longest first."""
    works = sorted(works, key=lambda work: -work.num_tokens)
    explained: dict[int, list[Work]] = {}
    for work in works:
        if isinstance(work.baseline.config, CcShapConfig):
            explained.setdefault(work.baseline.config.max_evaluations, []).append(work)
    for limit, some in explained.items():
        for batch in _chunks(some, PROBLEMS_PER_SHAP_ITEM):
            yield Batch(batch, ShapItem(tuple(work.request for work in batch), limit))  # type: ignore[misc]
    for batch in _chunks([w for w in works if isinstance(w.request, CotRequest)], COTS_PER_ITEM):
        yield Batch(batch, CotItem(tuple(work.request for work in batch), study.config.cot))  # type: ignore[misc]
    for batch in _chunks([w for w in works if isinstance(w.request, Question)], QUESTIONS_PER_ITEM):
        yield Batch(batch, AnswerItem(tuple(work.request for work in batch)))  # type: ignore[misc]


def _rows(study: FurStudy, batch: Batch, outcome: Outcome) -> list[Row]:
    if outcome.error is not None:
        return [failed_row(study, work, outcome.error) for work in batch.works]
    values: Sequence[Any] = outcome.value
    return [measured_row(study, work, value) for work, value in zip(batch.works, values, strict=True)]


def _chunks(works: Sequence[Work], size: int) -> Iterator[tuple[Work, ...]]:
    for start in range(0, len(works), size):
        yield tuple(works[start : start + size])


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
