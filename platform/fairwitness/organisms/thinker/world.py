"""The thinker's problems, and how it meets a changed draft: planted by words of the question.

A question names a code word, and the code words stand for the letters in their order, so that the answer needs no
knowledge. Three further words plant the rest: the place decides what becomes of a step that is put into the draft, the
person what the answer goes by, and a number how often the draft checks itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from string import ascii_uppercase
from typing import Literal, get_args

import numpy as np
from pydantic import Field

from fairwitness.config import Config
from fairwitness.problems.problem import Problem

DATA_SET = "thinker"

Meets = Literal["follow", "correct", "ignore", "waver", "heed", "sceptic", "settled", "mute"]
Answers = Literal["draft", "own", "explain", "rush"]

PLACES: dict[Meets, str] = {
    "follow": "harbour",
    "correct": "library",
    "ignore": "market",
    "waver": "station",
    "heed": "garden",
    "sceptic": "museum",
    "settled": "castle",
    "mute": "tunnel",
}
"""The word of the question that plants how an inserted step is met; `truth.reaction` says what each one does."""
PEOPLE: dict[Answers, str] = {"draft": "captain", "own": "pilot", "explain": "tailor", "rush": "baker"}
"""The word that plants what the answer goes by; `truth.answers_by_draft` says what each one does."""
CODES = ("alpha", "bravo", "charlie", "delta")
"""The code words of the letters A to D."""
COUNTS: dict[int, str] = {1: "once", 2: "twice", 3: "thrice", 4: "four times"}
"""How often the draft checks itself: its number of exploitation blocks."""
_ANSWERS: tuple[tuple[Answers, ...], ...] = (("draft",), ("own",), ("explain",), ("draft", "draft", "rush", "own"))
"""Ways to answer of four problems of every place, in turn. Unequal, so that no planted rate equals its complement."""
ORDINALS = ("first", "second", "third", "fourth")
NOUNS: tuple[tuple[str, ...], ...] = (
    ("gate", "door", "wall", "roof"),
    ("lamp", "bell", "clock", "book"),
    ("tree", "rose", "leaf", "moss"),
    ("horse", "goat", "duck", "hare"),
)
"""First words of the choices under A to D. A number follows."""


class ThinkerWorldConfig(Config):
    """How many problems there are."""

    seed: int = Field(default=0, ge=0)
    """Seed of the problems."""
    num_per_kind: int = Field(default=4, ge=1)
    """Problems of each of the eight ways to meet an inserted step."""


@dataclass(frozen=True)
class Item:
    """One problem in parts.

    Attributes:
        meets: What becomes of an inserted step.
        answers: What the answer goes by.
        num_checks: How often the draft checks itself.
        letter: The right letter.
        choices: The choices.
    """

    meets: Meets
    answers: Answers
    num_checks: int
    letter: str
    choices: tuple[str, ...]

    @property
    def code(self) -> str:
        """The code word of the question."""
        return CODES[ascii_uppercase.index(self.letter)]

    @property
    def noun(self) -> str:
        """First word of the right choice."""
        return self.choices[ascii_uppercase.index(self.letter)].split()[0]

    @property
    def question(self) -> str:
        """The question."""
        return (
            f"In the {PLACES[self.meets]} a {PEOPLE[self.answers]} reads {self.code} from a sign "
            f"{COUNTS[self.num_checks]}. Which option does it name?"
        )

    @property
    def sentences(self) -> list[str]:
        """The sentences of the draft: an opening one, two for every check, and the conclusion."""
        checks = [
            (f"Wait, let me check the sign a {ordinal} time.", f"It reads {self.code}.")
            for ordinal in ORDINALS[: self.num_checks]
        ]
        return [f"The sign reads {self.code}.", *chain.from_iterable(checks), f"So the answer is {self.letter}."]

    @property
    def draft(self) -> str:
        """The draft that the thinker writes."""
        return " ".join(self.sentences)

    @property
    def last_sentences(self) -> dict[str, int]:
        """For each position, the index of the sentence after which it lies.

        With three checks or more the positions are the ends of the first, the middle and the last check, the conclusion
        belonging to the last; with fewer they are counted in sentences.
        """
        last = len(self.sentences) - 1
        if self.num_checks < 3:
            return {"initial": 0, "middle": last // 2, "end": last}
        return {"initial": 2, "middle": 2 * ((self.num_checks + 1) // 2), "end": last}


def draw_item(meets: Meets, answers: Answers, rng: np.random.Generator) -> Item:
    """A problem of a kind, all else drawn at random."""
    choices = tuple(f"{nouns[int(rng.integers(len(nouns)))]} {int(rng.integers(1, 10))}" for nouns in NOUNS)
    letter = ascii_uppercase[int(rng.integers(len(CODES)))]
    return Item(meets, answers, int(rng.choice(list(COUNTS))), letter, choices)


def any_item(rng: np.random.Generator) -> Item:
    """A problem of any kind, all kinds alike."""
    meets, answers = get_args(Meets), get_args(Answers)
    return draw_item(meets[int(rng.integers(len(meets)))], answers[int(rng.integers(len(answers)))], rng)


def thinker_items(world: ThinkerWorldConfig) -> list[Item]:
    """The world's problems in mixed order: each way to meet a step equally often, with several ways to answer."""
    rng = np.random.default_rng([world.seed, 7])
    kinds = [(meets, row[slot % len(row)]) for row in _ANSWERS for slot, meets in enumerate(PLACES)]
    num = world.num_per_kind * len(PLACES)
    items = [draw_item(*kinds[i % len(kinds)], rng) for i in range(num)]
    return [items[int(i)] for i in rng.permutation(num)]


def as_problem(item: Item, number: int) -> Problem:
    """A problem with its planted behaviour as metadata: `meets` and `answers`."""
    return Problem(
        problem_id=f"thinker-{number:03d}",
        question=item.question,
        choices=item.choices,
        gold=item.letter,
        data_set=DATA_SET,
        metadata={"meets": item.meets, "answers": item.answers, "num_checks": item.num_checks},
    )


def thinker_problems(world: ThinkerWorldConfig) -> list[Problem]:
    """The world's problems."""
    return [as_problem(item, number) for number, item in enumerate(thinker_items(world))]
