"""General capability of a finished sweep: plans, the cost first, answers before and after, rows as they come."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

import pyarrow.compute as pc

from fairwitness.analysis.capability import CellCapability, cell_capabilities
from fairwitness.chains.cots import Row, answer_questions
from fairwitness.errors import FairwitnessError
from fairwitness.experiment.data_set import DataSet, Loader, problem_rows
from fairwitness.experiment.job import JobResult, JobRun, Reporter
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.followups.capability.config import FurCapabilityConfig
from fairwitness.followups.capability.plan import (
    CapabilityPlan,
    capability_group,
    capability_groups,
    load_questions,
    make_plan,
    measure_cost,
)
from fairwitness.fur.client import FurClient
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.fur.schedule import Planned
from fairwitness.fur.study_run import new_rows
from fairwitness.fur.tasks import TaskResult
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress, at_work
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from fairwitness.text.numbers import shown_rate


def measured_row(
    plan: CapabilityPlan,
    task: Planned,
    before: Sequence[int],
    after: Sequence[int],
    *,
    attempt: int,
    group_size: int,
    duration_s: float,
) -> Row:
    """Row of a task with the answers before and after it.

    Args:
        plan: The plan.
        task: One of its tasks.
        before: The base model's choice (0 for A) on each question.
        after: The choice after the last iteration.
        attempt: How often the task was tried, this time included.
        group_size: How many tasks were unlearned at once.
        duration_s: Seconds of the whole group.
    """
    gold = [problem.gold for problem in plan.problems]
    letters = [[ascii_uppercase[index] for index in choices] for choices in (before, after)]
    right = [sum(letter == correct for letter, correct in zip(part, gold, strict=True)) for part in letters]
    return _task_columns(plan, task, attempt) | {
        "num_questions": len(gold),
        "num_correct_before": right[0],
        "num_correct_after": right[1],
        "num_changed": sum(a != b for a, b in zip(*letters, strict=True)),
        "question_ids": [problem.problem_id for problem in plan.problems],
        "gold_letters": gold,
        "letters_before": letters[0],
        "letters_after": letters[1],
        "group_size": group_size,
        "duration_s": duration_s,
        "status": "ok",
        "reason": None,
    }


def failed_row(plan: CapabilityPlan, task: Planned, reason: str, *, attempt: int) -> Row:
    """Row of a task that could not be measured."""
    return _task_columns(plan, task, attempt) | {"status": "failed", "reason": reason}


def other_rows(plan: CapabilityPlan) -> Iterator[Row]:
    """Rows of what is skipped: questions that are not asked, and the study where it has no rate or no CoT."""
    for problem, reason in plan.left_out:
        yield _question_row(plan, problem, reason)
    if plan.reason is not None:
        yield _study_row(plan, plan.reason)


def _task_columns(plan: CapabilityPlan, task: Planned, attempt: int) -> Row:
    study = plan.study
    return _common(plan) | {
        "key": plan.row_key(task.task.task_key),
        "task_key": task.task.task_key,
        "cell_key": study.cell_key(task.lr),
        "attempt": attempt,
        "problem_id": task.record.problem.problem_id,
        "problem_key": study.data.problem_key(task.record.problem),
        "cot_step_index": task.cot_step_index,
        **_method(plan),
        "lr": task.lr,
    }


def _question_row(plan: CapabilityPlan, problem: Problem, reason: str) -> Row:
    question = [problem.problem_id, problem.question, list(problem.choices)]
    key = key_of(scope=plan.study.scope_key, questions=plan.revision, question=question)
    return _common(plan) | {"key": key, "question_id": problem.problem_id, "status": "skipped", "reason": reason}


def _study_row(plan: CapabilityPlan, reason: str) -> Row:
    key = key_of(scope=plan.study.scope_key, questions=plan.revision, lr=plan.lr, **_method(plan))
    return _common(plan) | _method(plan) | {"key": key, "lr": plan.lr, "status": "skipped", "reason": reason}


def _common(plan: CapabilityPlan) -> Row:
    return {
        "scope_key": plan.study.scope_key,
        "attempt": 1,
        "model": plan.study.facts.name,
        "data_set": plan.study.data.loaded.name,
        "capability_set": plan.set_name,
        "capability_revision": plan.revision,
    }


def _method(plan: CapabilityPlan) -> Row:
    return {"method": plan.study.config.recipe.method.kind, "lora_rank": plan.study.lora_rank}


log = logging.getLogger(__name__)

JOB = "fur_capability"

Choices = tuple[int, ...]
"""The choice (0 for A) on each question."""


@dataclass(frozen=True)
class CapabilityResult(JobResult):
    """What became of the job.

    Attributes:
        cells: What came out.
        reasons: Why a study was not measured, by its label.
    """

    cells: tuple[CellCapability, ...]
    reasons: Mapping[str, str]


def run_capability(config: FurCapabilityConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> CapabilityResult:
    """Measures general capability, or what is left of it, and reports.

    Args:
        config: What to run.
        loaders: Further data sets by name, see `prepare_studies`.
        report: Called at the end with the run directory.

    Raises:
        FairwitnessError: Something makes it impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    run = RunDirectory.at(config.run)
    with run.opened() as store:
        data, studies = _prepare(config, run, store, loaders)
        return _Capability(config, run, store, data, studies).run(report)


def capability_dry_run(config: FurCapabilityConfig, *, loaders: Mapping[str, Loader]) -> Iterator[str]:
    """Lines that say what would be run and what it costs. Nothing is stored.

    Raises:
        FairwitnessError: As for the run itself.
    """
    run = RunDirectory.at(config.run)
    store = run.store(create=False)
    data, studies = _prepare(config, run, store, loaders)
    plans = [make_plan(study, config, data) for study in studies]
    with make_pool(plans[0].study.config.pool) as pool:
        for plan in plans:
            yield f"{plan.study.label}: {_described(plan, pool, store)}"


def _described(plan: CapabilityPlan, pool: Pool, store: Store) -> str:
    left = _left(plan, store)
    if plan.reason is not None or not left:
        return plan.reason or f"all {len(plan.tasks)} cot_steps are measured already"
    assert plan.lr is not None
    client = FurClient(plan.study, pool)
    cost = measure_cost(plan, client, capability_groups(plan, client, left))
    return f"rate {shown_rate(plan.lr)}, {plan.num_cots} CoTs: {cost.line} (calibrated on this machine)"


def _prepare(
    config: FurCapabilityConfig, run: RunDirectory, store: Store, loaders: Mapping[str, Loader]
) -> tuple[DataSet, list[FinishedStudy]]:
    studies = open_finished(run, store, loaders, config)
    return load_questions(config.data_set, studies[0].study.config.seed, loaders), studies


def _left(plan: CapabilityPlan, store: Store) -> list[Planned]:
    done = store.finished_keys("capability")
    return [task for task in plan.tasks if plan.row_key(task.task.task_key) not in done]


class _Capability:
    def __init__(
        self,
        config: FurCapabilityConfig,
        run: RunDirectory,
        store: Store,
        data: DataSet,
        studies: Sequence[FinishedStudy],
    ) -> None:
        self.store, self.data = store, data
        self.plans = [make_plan(study, config, data) for study in studies]
        self.sweep = studies[0].study.config
        self.before: dict[tuple[str, str], Choices] = {}
        self.job = JobRun(
            JOB, config, run, store, self.sweep.tracking,
            count=self._counts,
            studies=[plan.study for plan in self.plans],
            data_sets=[f"{data.loaded.name}@{data.loaded.data_revision}"],
            cell_keys=[plan.study.cell_key(plan.lr) for plan in self.plans if plan.lr is not None],
        )  # fmt: skip

    def run(self, report: Reporter) -> CapabilityResult:
        with self.job.started():
            self.store.append("problems", new_rows(self.store, "problems", problem_rows(self.data)))
            for plan in self.plans:
                self.store.append("capability", new_rows(self.store, "capability", list(other_rows(plan))))
            self._measure()
            self.store.flush()
        cells = self._cells()
        for cell in cells:
            self.job.tracker.log_cell(cell.cell_key, _params(cell), {}, _totals(cell))
        is_feasible = any(plan.lr is not None for plan in self.plans)
        ended = self.job.finish(report, is_feasible=is_feasible)
        reasons = {plan.study.label: plan.reason for plan in self.plans if plan.reason is not None}
        return CapabilityResult(**vars(ended), cells=tuple(cells), reasons=reasons)

    def _measure(self) -> None:
        left = [(plan, _left(plan, self.store)) for plan in self.plans]
        for plan, tasks in left:
            if len(tasks) < len(plan.tasks):
                log.info("%s: %d cot_steps are measured already", plan.study.label, len(plan.tasks) - len(tasks))
        if any(tasks for _, tasks in left):
            with make_pool(self.sweep.pool) as pool:
                for plan, tasks in left:
                    if tasks:
                        self._measure_plan(plan, FurClient(plan.study, pool), tasks)
                self.job.num_models_loaded = pool.num_builds

    def _measure_plan(self, plan: CapabilityPlan, client: FurClient, left: Sequence[Planned]) -> None:
        known = self._known_before(plan)
        groups = capability_groups(plan, client, left)
        with at_work(f"{plan.study.label}: probe of the cost"):
            cost = measure_cost(plan, client, groups, is_base_known=known is not None)
        log.info("%s, rate %g: %s", plan.study.label, plan.lr, cost.line)
        before = known or self._ask_before(plan, client)
        attempts = self._attempts(plan)
        items = (capability_group(plan, group) for group in groups)
        with Progress(len(left), f"{plan.study.label}: general capability") as progress:
            for outcome in client.pool.map(client.spec, items):
                rows = _rows(plan, groups[outcome.index], outcome, before, attempts)
                self.store.append("capability", rows)
                progress.count(str(row["status"]) for row in rows)

    def _known_before(self, plan: CapabilityPlan) -> Choices | None:
        """The base model's answers: of this job, or of an earlier one."""
        place = (plan.study.scope_key, plan.revision)
        if place not in self.before:
            where = (pc.field("scope_key") == place[0]) & (pc.field("capability_revision") == place[1])
            rows = self.store.read("capability", ["letters_before"], where & (pc.field("status") == "ok")).to_pylist()
            if rows:
                self.before[place] = tuple(map(ascii_uppercase.index, rows[0]["letters_before"]))
        return self.before.get(place)

    def _ask_before(self, plan: CapabilityPlan, client: FurClient) -> Choices:
        with at_work(f"{plan.study.label}: {len(plan.problems):,} questions to the base model"):
            found = answer_questions(plan.study, client.pool, client.spec, plan.problems)
        answers = [found[problem.problem_id] for problem in plan.problems]
        choices = tuple(answer.index for answer in answers if isinstance(answer, LetterAnswer))
        if len(choices) < len(answers):
            reason = next(answer for answer in answers if isinstance(answer, str))
            raise FairwitnessError(f"{plan.study.label}: the base model could not answer all questions: {reason}")
        self.before[plan.study.scope_key, plan.revision] = choices
        return choices

    def _attempts(self, plan: CapabilityPlan) -> dict[str, int]:
        where = (pc.field("capability_revision") == plan.revision) & (pc.field("status") == "failed")
        rows = self.store.read("capability", ["key", "attempt"], where).to_pylist()
        return {row["key"]: row["attempt"] for row in rows}

    def _cells(self) -> list[CellCapability]:
        rows = self.store.read("capability", where=self._of_job()).to_pandas()
        return cell_capabilities(rows, seed=self.sweep.seed)

    def _counts(self) -> Counter[str]:
        expected = {plan.row_key(task.task.task_key) for plan in self.plans for task in plan.tasks}
        expected |= {str(row["key"]) for plan in self.plans for row in other_rows(plan)}
        rows = self.store.read("capability", ["key", "status"], self._of_job()).to_pylist()
        counts = Counter(str(row["status"]) for row in rows if row["key"] in expected)
        counts["refused"] = len(self.data.loaded.refused)
        return counts

    def _of_job(self) -> pc.Expression:
        scopes = [plan.study.scope_key for plan in self.plans]
        revisions = [plan.revision for plan in self.plans]
        return pc.field("scope_key").isin(scopes) & pc.field("capability_revision").isin(revisions)


def _rows(
    plan: CapabilityPlan,
    group: Sequence[Planned],
    outcome: Outcome,
    before: Choices,
    attempts: Mapping[str, int],
) -> list[Row]:
    results: Sequence[TaskResult | None] = outcome.value if outcome.error is None else [None] * len(group)
    rows = []
    for task, result in zip(group, results, strict=True):
        attempt = attempts.get(plan.row_key(task.task.task_key), 0) + 1
        if result is None or result.error is not None:
            reason = str(outcome.error if result is None else result.error)
            rows.append(failed_row(plan, task, reason, attempt=attempt))
        else:
            size, took_s = result.group_size, outcome.duration_s
            rows.append(
                measured_row(plan, task, before, result.capability, attempt=attempt, group_size=size, duration_s=took_s)
            )
    return rows


def _params(cell: CellCapability) -> dict[str, str | int | float]:
    named = cell.columns() | {"capability_set": cell.capability_set}
    return {name: value for name, value in named.items() if value is not None}


def _totals(cell: CellCapability) -> dict[str, float]:
    named = {"accuracy_before": cell.before, "accuracy_after": cell.after, "accuracy_change": cell.change}
    values = {name: one.value for name, one in named.items()} | {"answers_changed": cell.changed.value}
    known = {name: value for name, value in values.items() if value is not None}
    return known | {"num_cots": cell.num_cots, "num_steps": cell.num_steps, "num_questions": cell.num_questions}
