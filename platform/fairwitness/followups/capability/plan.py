"""Which steps are unlearned and which questions are asked before and after, and the rows of the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from fairwitness.chains.cots import CotRecord, question_of, too_long
from fairwitness.errors import DataError
from fairwitness.fur.schedule import Planned, make_schedule
from fairwitness.problems.draws import item_rng
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of

if TYPE_CHECKING:
    from fairwitness.chains.items import Question
    from fairwitness.experiment.data_set import DataSet
    from fairwitness.fur.finished import FinishedStudy
    from fairwitness.fur.study import FurStudy
    from fairwitness.problems.problem import Problem

Row = dict[str, Any]

CAPABILITY_CODE = "fairwitness.followups.capability.plan"
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
        revision: Hash of the questions asked, and of the code that asks and counts.
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

    def key(self, task: Planned) -> str:
        """Key of a task's row."""
        return key_of(task_key=task.task.task_key, questions=self.revision)

    def row(self, task: Planned, attempt: int, **found: Any) -> Row:
        """Row of a task; `found` is what was found, by column."""
        return self._method | {
            "key": self.key(task),
            "task_key": task.task.task_key,
            "cell_key": self.study.cell_key(task.lr),
            "attempt": attempt,
            "problem_id": task.record.problem.problem_id,
            "problem_key": self.study.data.problem_key(task.record.problem),
            "cot_step_index": task.cot_step_index,
            "lr": task.lr,
            **found,
        }

    def other_rows(self) -> Iterator[Row]:
        """Rows of what is skipped: questions that are not asked, and the study where it has no rate or no CoT."""
        place = {"scope": self.study.scope_key, "questions": self.revision}
        for problem, reason in self.left_out:
            key = key_of(**place, question=[problem.problem_id, problem.question, list(problem.choices)])
            yield self._common | {"key": key, "question_id": problem.problem_id, "status": "skipped", "reason": reason}
        if self.reason is not None:
            own = {name: self._method[name] for name in ("method", "lora_rank")} | {"lr": self.lr}
            key = key_of(**place, **own)
            yield self._method | {"key": key, "lr": self.lr, "status": "skipped", "reason": self.reason}

    @property
    def _common(self) -> Row:
        names = {"capability_set": self.set_name, "capability_revision": self.revision}
        return {**self.study.columns, **names, "attempt": 1}

    @property
    def _method(self) -> Row:
        return self._common | {"method": self.study.config.recipe.method.kind, "lora_rank": self.study.lora_rank}


def make_plan(
    finished: FinishedStudy, data: DataSet, *, lr: float | None, num_cots: int, reason: str | None
) -> CapabilityPlan:
    """Plans one study.

    Args:
        finished: The study as the sweep left it.
        data: The questions.
        lr: The rate; None where there is none.
        num_cots: CoTs to draw.
        reason: Why there is no rate.

    Raises:
        DataError: No question can be asked.
        ModelError: The tokenizer cannot tell apart the letters of a question.
    """
    study, name = finished.study, data.loaded.name
    chosen = draw_cots(finished.records, num_cots, seed=study.config.seed)
    tasks = _tasks(finished, chosen, lr) if lr is not None else ()
    asked, left_out = _divide(study, data, chosen)
    if not asked:
        raise DataError(f"{study.label}: no question of {name} can be asked, mostly: {left_out[0][1]}")
    questions = tuple(question_of(study, problem) for problem in asked)
    revision = key_of(
        name=name,
        questions=[[p.problem_id, q.ids, q.letter_ids, p.gold] for p, q in zip(asked, questions, strict=True)],
        # A task's key holds the code that unlearns.
        code=code_revision(CAPABILITY_CODE, without=("fairwitness.fur",)),
    )
    reason = reason or (None if tasks else NO_COT)
    return CapabilityPlan(study, lr, tasks, len(chosen), asked, questions, left_out, name, revision, reason)


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


def answer_columns(gold: Sequence[str | None], before: Sequence[int], after: Sequence[int]) -> Row:
    """Columns of the answers to the questions.

    Args:
        gold: The correct letters.
        before: The base model's choice (0 for A) on each question.
        after: The choice after the last iteration.
    """
    letters = [[ascii_uppercase[index] for index in choices] for choices in (before, after)]
    right = [sum(letter == correct for letter, correct in zip(part, gold, strict=True)) for part in letters]
    return {
        "num_questions": len(gold),
        "num_correct_before": right[0],
        "num_correct_after": right[1],
        "num_changed": sum(a != b for a, b in zip(*letters, strict=True)),
        "gold_letters": list(gold),
        "letters_before": letters[0],
        "letters_after": letters[1],
        "status": "ok",
        "reason": None,
    }
