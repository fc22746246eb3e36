"""The multiple-choice problem that every measurement starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase

MAX_CHOICES = len(ascii_uppercase)
MIN_CHOICES = 2


@dataclass(frozen=True)
class Problem:
    """One multiple-choice question.

    Attributes:
        problem_id: Name of the problem, unique in its data set.
        question: The question, not empty.
        choices: Texts of the 2 to 26 choices, in the order shown.
        gold: Letter of the correct choice, or None when it is not known.
        data_set: Name of the data set.
        split: Name of the split, empty when there is none.
        metadata: Further facts as strings, numbers or booleans; never used by a measurement.

    Raises:
        ValueError: The question is empty, a choice is empty, there are too few or too many choices, or gold is
            not one of the letters.
    """

    problem_id: str
    question: str
    choices: tuple[str, ...]
    gold: str | None
    data_set: str
    split: str = ""
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("question is empty")
        if not MIN_CHOICES <= len(self.choices) <= MAX_CHOICES:
            raise ValueError(f"choices: {len(self.choices)} given, {MIN_CHOICES} to {MAX_CHOICES} are possible")
        for letter, text in zip(self.letters, self.choices, strict=True):
            if not text.strip():
                raise ValueError(f"choice {letter} is empty")
        if self.gold is not None and self.gold not in self.letters:
            raise ValueError(f"gold letter {self.gold!r} is not one of {', '.join(self.letters)}")

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the choices, A first."""
        return tuple(ascii_uppercase[: len(self.choices)])
