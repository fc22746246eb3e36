"""What a measurement of general capability costs, from a measured probe of one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.chains.cots import CotRecord, question_of, too_long
from fairwitness.chains.items import Question
from fairwitness.errors import DataError, FairwitnessError
from fairwitness.experiment.data_set import DataSet, Loader, prepare_data_sets
from fairwitness.followups.capability.config import FurCapabilityConfig
from fairwitness.fur.client import FurClient
from fairwitness.fur.finished import FinishedStudy
from fairwitness.fur.schedule import Planned, engine_group, make_schedule, pack_groups
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import TaskResult
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.problems.config import DataConfig
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of
from fairwitness.records.progress import duration

NO_GOLD = "the correct choice is not known"
OWN_CHOICE = "it is the problem of an unlearned cot_step"
NO_COT = "no problem counts: none has agreeing answers and an eligible cot_step"


@dataclass(frozen=True)
class CapabilityPlan:
    """The measurement of one study.

    Attributes:
        study: The study.
        lr: The rate; None where there is none.
        tasks: The eligible steps of the drawn CoTs.
        num_cots: CoTs drawn.
        problems: The questions asked, in their order.
        questions: The same as token ids.
        left_out: Questions that are not asked, with the reason.
        set_name: Name of the questions' data set.
        revision: Hash of the questions asked.
        reason: Why nothing is measured; None where something is.
    """

    study: FurStudy
    lr: float | None
    tasks: tuple[Planned, ...]
    num_cots: int
    problems: tuple[Problem, ...]
    questions: tuple[Question, ...]
    left_out: tuple[tuple[Problem, str], ...]
    set_name: str
    revision: str
    reason: str | None

    @property
    def num_tokens(self) -> int:
        """Tokens of all questions together: what one task's answers cost."""
        return sum(len(question.ids) for question in self.questions)

    def row_key(self, task_key: str) -> str:
        """Key of a task's row in `capability`."""
        return key_of(task_key=task_key, questions=self.revision)


def load_questions(config: DataConfig, seed: int, loaders: Mapping[str, Loader]) -> DataSet:
    """Reads the questions, and draws `num_problems` of them where it is set.

    Args:
        config: Which set.
        seed: The sweep's seed.
        loaders: Further data sets by name, see `prepare_studies`.

    Raises:
        DataError: The set cannot be read, is too small, or no question has a known correct choice.
    """
    (data,) = prepare_data_sets([config], seed, loaders, hold_out=False)
    if not any(problem.gold for problem in data.selection.measured):
        raise DataError(f"data_set: {data.loaded.name} has no question with a known answer, so there is no accuracy")
    return data


def make_plan(finished: FinishedStudy, config: FurCapabilityConfig, data: DataSet) -> CapabilityPlan:
    """Plans one study.

    Args:
        finished: The study as the sweep left it.
        config: The job's configuration.
        data: The questions, see `load_questions`.

    Raises:
        DataError: No question can be asked.
        ModelError: The tokenizer cannot tell apart the letters of a question.
    """
    study = finished.study
    chosen = draw_cots(finished.records, config.num_cots, seed=study.config.seed)
    lr, reason = _rate(finished, config)
    tasks = _tasks(finished, chosen, lr) if lr is not None else ()
    reason = reason or (None if tasks else NO_COT)
    asked, left_out = _divide(study, data, chosen)
    if not asked:
        raise DataError(f"{study.label}: no question of {data.loaded.name} can be asked, mostly: {left_out[0][1]}")
    questions = tuple(question_of(study, problem) for problem in asked)
    revision = key_of(
        name=data.loaded.name,
        questions=[[p.problem_id, q.ids, q.letter_ids, p.gold] for p, q in zip(asked, questions, strict=True)],
    )
    return CapabilityPlan(study, lr, tasks, len(chosen), asked, questions, left_out, data.loaded.name, revision, reason)


def draw_cots(records: Sequence[CotRecord], num: int, *, seed: int) -> list[CotRecord]:
    """Draws CoTs of problems that count: direct and CoT answers agree, and a step is eligible.

    A larger `num` adds to the drawn ones without exchanging any; with fewer problems than asked for, all are taken.

    Args:
        records: The base model on every problem.
        num: How many to draw.
        seed: Seed of the sweep.
    """
    able = [record for record in records if record.agree and record.eligible]
    ranked = sorted(
        able, key=lambda r: (item_rng(seed, r.problem.problem_id, "capability").random(), r.problem.problem_id)
    )
    return ranked[:num]


def _rate(finished: FinishedStudy, config: FurCapabilityConfig) -> tuple[float | None, str | None]:
    if not isinstance(config.lr, str):
        return config.lr, None
    choice = finished.choice
    return (choice.cell.lr, None) if isinstance(choice, ChosenRate) else (None, choice.reason)


def _tasks(finished: FinishedStudy, chosen: Sequence[CotRecord], lr: float) -> tuple[Planned, ...]:
    wanted = {lr: {record.problem.problem_id for record in chosen}}
    # Retain sets are drawn in an order of all problems, those whose CoT failed among them.
    known = {record.problem.problem_id for record in finished.records}
    others = [p for p in finished.study.data.selection.measured if p.problem_id not in known]
    records = [*finished.records, *(CotRecord(problem, (), status="failed") for problem in others)]
    return make_schedule(finished.study, records, frozenset(), {}, wanted).planned


def _divide(
    study: FurStudy, data: DataSet, chosen: Sequence[CotRecord]
) -> tuple[tuple[Problem, ...], tuple[tuple[Problem, str], ...]]:
    own = {(record.problem.question, record.problem.choices) for record in chosen}
    asked: list[Problem] = []
    left_out: list[tuple[Problem, str]] = []
    for problem in sorted(data.selection.measured, key=lambda problem: problem.problem_id):
        num_tokens = len(study.encoder.direct(problem))
        if problem.gold is None:
            left_out.append((problem, NO_GOLD))
        elif (problem.question, problem.choices) in own:
            left_out.append((problem, OWN_CHOICE))
        elif num_tokens > study.facts.context_length:
            left_out.append((problem, too_long(study, num_tokens)))
        else:
            asked.append(problem)
    return tuple(asked), tuple(left_out)


NUM_PROBE_QUESTIONS = 32


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
