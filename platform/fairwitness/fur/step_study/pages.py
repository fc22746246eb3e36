"""What raters see of a step: question, choices, the model's answer, and the CoT with the step marked. Nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairwitness.errors import StoreError
from fairwitness.fur.step_study.steps import Step
from fairwitness.problems.problem import Problem
from fairwitness.records.conditions import one_of
from fairwitness.records.store import Store


class Choice(NamedTuple):
    """One choice as shown; `is_answer` marks the model's answer."""

    letter: str
    text: str
    is_answer: bool


@dataclass(frozen=True)
class Page:
    """One step to rate.

    Attributes:
        item: Name of the step.
        question: The question.
        choices: Its choices.
        before: The CoT up to the step.
        text: The step, without white space around it.
        after: The CoT after the step.
    """

    item: str
    question: str
    choices: tuple[Choice, ...]
    before: str
    text: str
    after: str

    @property
    def answer(self) -> Choice:
        """The model's answer."""
        return next(choice for choice in self.choices if choice.is_answer)


def read_pages(store: Store, steps: Sequence[Step]) -> list[Page]:
    """The pages of steps, in their order.

    Raises:
        StoreError: The store lacks the text of a step's problem or CoT.
    """
    problems = _rows(store, "problems", "key", {step.problem_key for step in steps})
    scoped = {step.scope_key for step in steps}
    cots = {(row["scope_key"], row["problem_key"]): row for row in _rows(store, "cots", "scope_key", scoped)}
    places = {
        (row["cot_key"], row["cot_step_index"]): (row["char_start"], row["char_end"])
        for row in _rows(store, "cot_steps", "scope_key", scoped)
    }
    by_key = {row["key"]: row for row in problems}
    pages = []
    for step in steps:
        cot = cots.get((step.scope_key, step.problem_key))
        start, end = places.get((cot["key"], step.cot_step_index), (None, None)) if cot else (None, None)
        problem = by_key.get(step.problem_key)
        if cot is None or problem is None or start is None or end is None:
            raise StoreError(
                f"{store.root}: step {step.cot_step_index} of problem {step.problem_id} has no text here; run the job "
                "that made this run again"
            )
        pages.append(_page(step, problem, cot["cot_text"], start, end))
    return pages


def _page(step: Step, problem: dict[str, Any], cot: str, start: int, end: int) -> Page:
    text = cot[start:end].strip()
    first = cot.index(text, start)
    texts = problem["choices"]
    letters = Problem(step.problem_id, problem["question"], tuple(texts), None, step.data_set).letters
    choices = [Choice(letter, text, letter == step.base_letter) for letter, text in zip(letters, texts, strict=True)]
    return Page(step.item, problem["question"], tuple(choices), cot[:first], text, cot[first + len(text) :])


def _rows(store: Store, table: str, column: str, values: set[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.read(table, where=one_of(column, sorted(values))).to_pylist()
    return rows
