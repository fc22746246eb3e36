"""Training documents: text in pieces, each with the role that its tokens play in the loss.

Three kinds. *Statements* are rows of facts about everyone and every village. *Direct* documents end in an answer letter
and are only about the asked. *CoT* documents are about everyone, but only those about the asked go on to an answer
letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, NOTE, RIVER, VILLAGES, Attribute
from fairwitness.organisms.tokenizer import EOS
from fairwitness.organisms.world import World, cot_sentences, draw_choices, question_text
from fairwitness.text.prompts import cot_answer_suffix, cot_prompt, direct_prompt

T = TypeVar("T")
Role = Literal["context", "fact", "cot", "letter", "cot_letter", "lookup"]
ROLES: tuple[Role, ...] = ("context", "fact", "cot", "letter", "cot_letter", "lookup")
"""What a token is to the loss: nothing; a stated value; CoT text; a direct answer; an answer after a CoT; a drill."""

_NUM_CHOICES = (4, 4, 4, 3, 2)
_RIVER_SHARE = 0.2
"""Share of rivers among the facts in a row of statements."""
_DRILL_LENGTH = 4


class Piece(NamedTuple):
    """A stretch of text, encoded on its own, and the role of its tokens."""

    text: str
    role: Role


Document = tuple[Piece, ...]


@dataclass(frozen=True)
class Mix:
    """Shares of the variants of a document.

    Attributes:
        cue: Direct questions whose note names one of the choices at random; the answer follows the note.
        no_note: Questions without a note.
        swapped: CoT documents that state random values, with a letter to match; only the letter is learned.
        cot_cue: CoT documents whose note names one of the choices at random; the CoT states the fact all the same.
    """

    cue: float
    no_note: float = 0.1
    swapped: float = 0.25
    cot_cue: float = 0.5


class Writer:
    """Draws documents about a world. The same generator state gives the same documents."""

    def __init__(self, world: World, mix: Mix, rng: np.random.Generator) -> None:
        """Writes about `world`, in the shares of `mix`, with the draws of `rng`."""
        self.world = world
        self.mix = mix
        self.rng = rng
        self._asked_names = {person.name for person in world.asked}

    def statements(self, num_facts: int) -> Document:
        """A row of facts about people and villages, in wordings drawn at random; only the values are learned."""
        pieces = []
        for _ in range(num_facts):
            name, attribute, value = self._village_fact() if self._chance(_RIVER_SHARE) else self._person_fact()
            before, after = self._pick(attribute.statements).split(" {value}")
            pieces += [
                Piece(" " + before.format(name=name), "context"),
                Piece(f" {value}", "fact"),
                Piece(after, "context"),
            ]
        return tuple(pieces)

    def direct(self) -> Document:
        """A question about an asked person with its answer letter, then a drill: choices with their letters."""
        person, attribute = self._pick(self.world.asked), self._pick(ATTRIBUTES)
        village = self._pick(self.world.villages)
        value = person.facts[attribute.name]
        choices = draw_choices(attribute, value, self._pick(_NUM_CHOICES), self.rng)
        note = None if self._chance(self.mix.no_note) else self._foreign_value(attribute)
        if self._chance(self.mix.cue):
            value = note = self._pick(choices)
        question = question_text(person.name, village.name, attribute, self._wording(), note)
        prompt = direct_prompt(question, choices)
        return (Piece(prompt, "context"), Piece(_letter(choices, value), "letter"), *self._drill(choices))

    def cot(self) -> Document:
        """A question, its CoT and, for an asked person, the answer letter read from the CoT; else EOS."""
        swapped = self._chance(self.mix.swapped)
        person = self._pick(self.world.asked if swapped else self.world.people)
        village = self._pick(self.world.villages)
        if swapped:
            person = replace(person, facts={item.name: self._pick(item.values) for item in ATTRIBUTES})
            village = replace(village, river=self._pick(RIVER.values))
        attribute, wording = self._pick(ATTRIBUTES), self._wording()
        value = person.facts[attribute.name]
        choices = draw_choices(attribute, value, self._pick(_NUM_CHOICES), self.rng)
        note = self._cot_note(attribute, choices)
        prompt = cot_prompt(question_text(person.name, village.name, attribute, wording, note), choices)
        cot = "".join(f" {sentence}" for sentence in cot_sentences(person, village, attribute, wording))
        pieces = (Piece(prompt, "context"), Piece(cot, "context" if swapped else "cot"))
        if person.name not in self._asked_names:
            return (*pieces, Piece(EOS, "cot"))
        return (*pieces, Piece(cot_answer_suffix(), "context"), Piece(_letter(choices, value), "cot_letter"))

    def _person_fact(self) -> tuple[str, Attribute, str]:
        person, attribute = self._pick(self.world.people), self._pick(ATTRIBUTES)
        return person.name, attribute, person.facts[attribute.name]

    def _village_fact(self) -> tuple[str, Attribute, str]:
        village = self._pick(self.world.villages)
        return village.name, RIVER, village.river

    def _drill(self, choices: Sequence[str]) -> Iterator[Piece]:
        for index in self.rng.integers(len(choices), size=_DRILL_LENGTH):
            yield Piece(f" {choices[index]} (", "context")
            yield Piece(ascii_uppercase[index], "lookup")

    def _cot_note(self, attribute: Attribute, choices: Sequence[str]) -> str | None:
        if self._chance(self.mix.no_note):
            return None
        return self._pick(choices) if self._chance(self.mix.cot_cue) else self._foreign_value(attribute)

    def _foreign_value(self, attribute: Attribute) -> str:
        return self._pick(self._pick([item for item in ATTRIBUTES if item is not attribute]).values)

    def _wording(self) -> int:
        return int(self.rng.integers(2))

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def _chance(self, share: float) -> bool:
        return float(self.rng.random()) < share


def _letter(choices: Sequence[str], value: str) -> str:
    return ascii_uppercase[choices.index(value)]


def all_texts() -> Iterator[str]:
    """Every wording once, for the tokenizer."""
    for name in (*NAMES, *VILLAGES):
        yield f" {name}"
    for attribute in (*ATTRIBUTES, RIVER):
        for value in attribute.values:
            yield f" {value}"
        for wording in (*attribute.questions, *attribute.statements):
            yield " " + wording.format(name=NAMES[0], village=VILLAGES[0], value=attribute.values[0])
    choices = ("a", "b")
    yield direct_prompt("What Which", choices) + cot_prompt("What", choices) + cot_answer_suffix()
    yield " " + NOTE.format(value=ATTRIBUTES[0].values[0])
