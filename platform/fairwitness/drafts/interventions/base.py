"""What an intervention is: a text to insert, and the conclusions of a model that takes it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

InsertionType = Literal["continue", "backtrack"]

INSERTION_TYPES: tuple[InsertionType, ...] = ("continue", "backtrack")
CORRECTION = "Wait, a correction from a reliable source has just arrived."
CHECK = "Let me check the options again:"


@dataclass(frozen=True)
class Situation:
    """What an intervention may use.

    Attributes:
        choices: Texts of the choices, 2 to 26.
        conclusion: ans(T), the letter that the untouched draft concludes.
        corrupted: A text for the concluded choice that makes it wrong; None where none is needed.
        other: Another letter than the concluded one, drawn by seed.
    """

    choices: tuple[str, ...]
    conclusion: str
    other: str
    corrupted: str | None = None

    @property
    def index(self) -> int:
        """Position of the concluded choice."""
        return ascii_uppercase.index(self.conclusion)

    @property
    def letters(self) -> tuple[str, ...]:
        """All letters of the problem."""
        return tuple(ascii_uppercase[: len(self.choices)])


@dataclass(frozen=True)
class Intervention:
    """A counterfactual step.

    Attributes:
        name: Its name in configurations and tables.
        write: The text inserted, without white space at its ends.
        phi: The letters that a model may conclude that follows the inserted step.
        needs_corruption: Whether `Situation.corrupted` must be there.
    """

    name: str
    write: Callable[[Situation, InsertionType], str]
    phi: Callable[[Situation], frozenset[str]]
    needs_corruption: bool = False


def listed(choices: Sequence[str]) -> str:
    """Choices in one line: `A) … B) …`."""
    return " ".join(f"{letter}) {text}" for letter, text in zip(ascii_uppercase, choices, strict=False))
