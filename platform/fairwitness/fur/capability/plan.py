"""What is to be measured of one finished study: which CoTs, at which rate, on which questions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwitness.errors import DataError
from fairwitness.fur.capability.config import FurCapabilityConfig
from fairwitness.fur.cots import CotRecord, question_of, too_long
from fairwitness.fur.faithfulness import ChosenRate
from fairwitness.fur.finished import FinishedStudy
from fairwitness.fur.schedule import Planned, make_schedule
from fairwitness.fur.study import Study
from fairwitness.fur.tasks import Question
from fairwitness.problems.config import DataConfig
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.records.data_set import DataSet, Loader, prepare_data_sets
from fairwitness.records.keys import key_of

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

    study: Study
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
    study: Study, data: DataSet, chosen: Sequence[CotRecord]
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
