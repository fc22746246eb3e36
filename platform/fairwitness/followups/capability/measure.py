"""General capability of a finished sweep's models: the cost first, then answers before and after unlearning."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any

import pyarrow.compute as pc

from fairwitness.analysis.capability import CellCapability, cell_capabilities
from fairwitness.analysis.faithfulness import ChosenRate, Infeasible
from fairwitness.analysis.runs import CAPABILITY_JOB
from fairwitness.chains.cots import answer_questions
from fairwitness.chains.items import Ids, Question
from fairwitness.errors import DataError, FairwitnessError
from fairwitness.experiment.data_set import prepare_data_sets, problem_rows
from fairwitness.experiment.measure import CellLog, Session, Stage, Supplies
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Outcome
from fairwitness.followups.capability.plan import CAPABILITY_CODE, CapabilityPlan, Row, answer_columns, make_plan
from fairwitness.followups.config import FurCapabilityConfig
from fairwitness.followups.following import FollowUp, seed_of
from fairwitness.fur.client import FurClient
from fairwitness.fur.finished import FinishedStudy
from fairwitness.fur.schedule import Planned, engine_group, pack_groups
from fairwitness.fur.tasks import TaskResult
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.records.progress import at_work, duration
from fairwitness.records.store import Store, one_of
from fairwitness.text.numbers import shown_rate

log = logging.getLogger(__name__)

NUM_PROBE_QUESTIONS = 32


class FurCapability(FollowUp[FurCapabilityConfig]):
    """Accuracy on questions before and after unlearning each step of a few CoTs (FUR §4.2).

    Attributes:
        plans: What is measured of each study.
        measured: What came out, once it has.
    """

    job = CAPABILITY_JOB
    code = (CAPABILITY_CODE,)

    def __init__(self, config: FurCapabilityConfig, supplies: Supplies) -> None:
        """Opens the sweep, reads the questions, and draws `num_problems` of them where it is set.

        Raises:
            DataError: The questions cannot be read, are too few, have no known answers, or none can be asked.
            FairwitnessError: See `open_finished`.
        """
        super().__init__(config, supplies)
        (data,) = prepare_data_sets([config.data_set], self.settings.seed, supplies.loaders, hold_out=False)
        if not any(problem.gold for problem in data.selection.measured):
            raise DataError(f"data_set: {data.loaded.name} has no question with a known answer, so no accuracy")
        self.data = data
        self.plans = [self._plan(one) for one in self.finished]
        cells = [plan.study.cell_key(plan.lr) for plan in self.plans if plan.lr is not None]
        self.cell_keys = [*cells, *dict.fromkeys(plan.revision for plan in self.plans)]
        self.measured: tuple[CellCapability, ...] = ()

    def _plan(self, finished: FinishedStudy) -> CapabilityPlan:
        lr: float | ChosenRate | Infeasible = finished.choice if isinstance(self.config.lr, str) else self.config.lr
        reason = lr.reason if isinstance(lr, Infeasible) else None
        rate = lr.cell.lr if isinstance(lr, ChosenRate) else lr if isinstance(lr, float) else None
        return make_plan(finished, self.data, lr=rate, num_cots=self.config.num_cots, reason=reason)

    @property
    def reasons(self) -> dict[str, str]:
        """Why a study is not measured, by its label."""
        return {plan.study.label: plan.reason for plan in self.plans if plan.reason is not None}

    @property
    def columns(self) -> dict[str, Any]:
        """The questions, instead of the sweep's data sets."""
        return {"data_sets": [f"{self.data.loaded.name}@{self.data.loaded.data_revision}"]}

    def counts(self, store: Store) -> Counter[str]:
        """Steps and questions by status."""
        keys = [plan.key(task) for plan in self.plans for task in plan.tasks]
        keys += [str(row["key"]) for plan in self.plans for row in plan.other_rows()]
        counts = Counter(store.read("capability", ["status"], one_of("key", keys))["status"].to_pylist())
        counts["refused"] = len(self.data.loaded.refused)
        return counts

    def measure(self, session: Session) -> None:
        """See `Measure.measure`."""
        session.add("problems", problem_rows(self.data))
        for plan in self.plans:
            session.add("capability", plan.other_rows())
        super().measure(session)
        row = {"cell_keys": self.cell_keys}
        self.measured = tuple(_measured(session.store, row))
        session.log(self.cells(session.store, row))

    def stages(self, session: Session) -> Iterator[Stage[Planned]]:
        """See `Measure.stages`: the steps of one study after those of another."""
        for plan in self.plans:
            left = _left(plan, session.store)
            if len(left) < len(plan.tasks):
                log.info("%s: %d cot_steps are measured already", plan.study.label, len(plan.tasks) - len(left))
            if left:
                yield _stage(plan, session, left)

    @classmethod
    def cells(cls, store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[CellLog]:
        """See `Measure.cells`; a cell is one rate of one study."""
        for cell in _measured(store, row, keys):
            params = cell.columns() | {"capability_set": cell.capability_set}
            shares = {"accuracy_before": cell.before, "accuracy_after": cell.after, "accuracy_change": cell.change}
            values = {name: one.value for name, one in shares.items()} | {"answers_changed": cell.changed.value}
            totals = {name: value for name, value in values.items() if value is not None}
            totals |= {"num_cots": cell.num_cots, "num_steps": cell.num_steps, "num_questions": cell.num_questions}
            yield CellLog(cell.cell_key, {k: v for k, v in params.items() if v is not None}, {}, totals)

    def dry_run(self) -> Iterator[str]:
        """See `Measure.dry_run`; calibrated on one group of tasks."""
        store = self.run.store(create=False)
        with make_pool(self.pool) as pool:
            for plan in self.plans:
                left = _left(plan, store)
                found = plan.reason or f"all {len(plan.tasks)} cot_steps are measured already"
                if plan.lr is not None and plan.reason is None and left:
                    client = FurClient(plan.study, pool)
                    line = measure_cost(plan, client, capability_groups(plan, client, left)).line
                    found = f"rate {shown_rate(plan.lr)}, {plan.num_cots} CoTs: {line} (calibrated on this machine)"
                yield f"{plan.study.label}: {found}"


def _left(plan: CapabilityPlan, store: Store) -> list[Planned]:
    done = store.finished_keys("capability")
    return [task for task in plan.tasks if plan.key(task) not in done]


def _measured(store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> list[CellCapability]:
    wanted = row["cell_keys"]
    asked = one_of("capability_revision", wanted)
    of_cells = one_of("cell_key", wanted if keys is None else keys) | pc.field("question_id").is_valid()
    return cell_capabilities(store.read("capability", where=asked & of_cells).to_pandas(), seed=seed_of(store))


def _stage(plan: CapabilityPlan, session: Session, left: Sequence[Planned]) -> Stage[Planned]:
    client = FurClient(plan.study, session.pool)
    groups = capability_groups(plan, client, left)
    before = _known_before(plan, session.store)
    with at_work(f"{plan.study.label}: probe of the cost"):
        cost = measure_cost(plan, client, groups, is_base_known=before is not None)
    log.info("%s, rate %g: %s", plan.study.label, plan.lr, cost.line)
    base = before or _ask_before(plan, client)
    failed = (pc.field("capability_revision") == plan.revision) & (pc.field("status") == "failed")
    tried = session.store.read("capability", ["key", "attempt"], failed).to_pylist()
    attempts = {row["key"]: row["attempt"] for row in tried}

    def rows(group: Sequence[Planned], outcome: Outcome) -> Iterator[list[Row]]:
        results: Sequence[TaskResult | None] = outcome.value if outcome.error is None else [None] * len(group)
        for task, result in zip(group, results, strict=True):
            attempt = attempts.get(plan.key(task), 0) + 1
            error = outcome.error if result is None else result.error
            if result is None or error is not None:
                yield [plan.row(task, attempt, status="failed", reason=error)]
            else:
                found = answer_columns([problem.gold for problem in plan.problems], base, result.capability)
                found |= {"question_ids": [problem.problem_id for problem in plan.problems]}
                how = {"group_size": result.group_size, "duration_s": outcome.duration_s}
                yield [plan.row(task, attempt, **found, **how)]

    return Stage(
        label=f"{plan.study.label}: general capability",
        table="capability",
        spec=client.spec,
        batches=groups,
        request=lambda group: capability_group(plan, group),
        rows=lambda group, outcome: list(rows(group, outcome)),
    )


def _known_before(plan: CapabilityPlan, store: Store) -> Ids | None:
    """The base model's answers, where a task of the same questions has them."""
    same = (pc.field("scope_key") == plan.study.scope_key) & (pc.field("capability_revision") == plan.revision)
    found = store.read("capability", ["letters_before"], same & (pc.field("status") == "ok"))["letters_before"]
    return tuple(map(ascii_uppercase.index, found[0].as_py())) if len(found) else None


def _ask_before(plan: CapabilityPlan, client: FurClient) -> Ids:
    """The base model's answers.

    Raises:
        FairwitnessError: A question could not be answered.
    """
    with at_work(f"{plan.study.label}: {len(plan.problems):,} questions to the base model"):
        found = answer_questions(plan.study, client.pool, client.spec, plan.problems)
    answers = [found[problem.problem_id] for problem in plan.problems]
    for answer in answers:
        if isinstance(answer, str):
            raise FairwitnessError(f"{plan.study.label}: the base model could not answer all questions: {answer}")
    return tuple(answer.index for answer in answers if isinstance(answer, LetterAnswer))


@dataclass(frozen=True)
class CapabilityCost:
    """What is to be done for one study, and how long it takes.

    Attributes:
        num_tasks: Steps to unlearn.
        num_questions: Questions asked after each of them, and once before.
        num_tokens: Tokens of all these questions, the base model's included.
        group_size: Tasks per group.
        seconds: Expected seconds with all actors at work; None where the probe failed.
        reason: Why it failed.
    """

    num_tasks: int
    num_questions: int
    num_tokens: int
    group_size: int
    seconds: float | None
    reason: str | None = None

    @property
    def line(self) -> str:
        """The cost for people."""
        time = f"time unknown ({self.reason})" if self.seconds is None else f"about {duration(self.seconds)}"
        return (
            f"{self.num_tasks:,} cot_steps to unlearn in groups of {self.group_size}, {self.num_questions:,} questions "
            f"after each and once before: {self.num_tokens:,} tokens; {time}"
        )


def capability_group(
    plan: CapabilityPlan, group: Sequence[Planned], questions: Sequence[Question] | None = None
) -> UnlearnGroup:
    """What the engine is sent for a group: no held-out questions, no CoT afterwards, but the capability questions.

    Args:
        plan: The plan.
        group: Some of its tasks.
        questions: Other questions than the plan's.
    """
    asked = plan.questions if questions is None else tuple(questions)
    return replace(engine_group(plan.study, group, ()), cot_after=None, capability=asked)


def capability_groups(plan: CapabilityPlan, client: FurClient, tasks: Sequence[Planned]) -> list[list[Planned]]:
    """Tasks in groups as large as the engine's memory allows.

    Raises:
        FairwitnessError: The engine cannot be asked.
    """
    size = client.capacity(tasks, ()).group_size
    return pack_groups(tasks, size, plan.study.config.pool.most_workers)


def measure_cost(
    plan: CapabilityPlan, client: FurClient, groups: Sequence[Sequence[Planned]], *, is_base_known: bool = False
) -> CapabilityCost:
    """Unlearns one group and asks it a few questions of every length; scales up by tasks and tokens.

    Args:
        plan: The plan.
        client: Its engine.
        groups: The groups to run; the first is the probe.
        is_base_known: The base model's answers are there already.
    """
    num_tasks = sum(map(len, groups))
    num_tokens = (num_tasks + (not is_base_known)) * plan.num_tokens
    cost = CapabilityCost(num_tasks, len(plan.questions), num_tokens, len(groups[0]), None)
    by_length = sorted(plan.questions, key=lambda question: len(question.ids))
    sample = by_length[:: -(-len(by_length) // NUM_PROBE_QUESTIONS)]
    try:
        results: list[TaskResult] = client.ask(capability_group(plan, groups[0], sample), "one group of tasks")
    except FairwitnessError as error:
        return replace(cost, reason=str(error))
    good = [result for result in results if result.error is None]
    if not good:
        return replace(cost, reason=f"no cot_step of the probe could be unlearned: {results[0].error}")
    asked_s = sum(result.capability_s for result in good) / len(good)
    unlearning_s = sum(result.duration_s for result in good) / len(good) - asked_s
    per_token_s = asked_s / sum(len(question.ids) for question in sample)
    seconds = (num_tasks * unlearning_s + num_tokens * per_token_s) / plan.study.config.pool.most_workers
    return replace(cost, seconds=seconds)
