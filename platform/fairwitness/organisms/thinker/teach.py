"""Trains the thinker on the very texts that the drafts job inserts, put together as that job puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from fairwitness.drafts.interventions import INSERTION_TYPES, INTERVENTIONS, Situation
from fairwitness.drafts.interventions.base import CHECK, listed
from fairwitness.drafts.plan import direct_conclusion
from fairwitness.drafts.steps import decompose, places, step_token_ends
from fairwitness.drafts.styles import IMMEDIATE_CUE, DraftStyle
from fairwitness.drafts.writing import corrupt_by_rules
from fairwitness.lm.tokens import decode, encode, encode_continuation
from fairwitness.organisms.thinker.check import AlteredEnd, Changes, InsertedText, check_thinker
from fairwitness.organisms.thinker.train import CLOSE, OPEN, Draw, Example, ThinkerConfig, train_thinker
from fairwitness.organisms.thinker.truth import TAUGHT, answered, continued, named_choices, placed, reaction
from fairwitness.organisms.thinker.world import NOUNS, Item, any_item, as_problem
from fairwitness.text.think_tags import Tags

_SHARE_INTRA, _SHARE_ANSWER, _SHARE_DRILL = 0.5, 0.2, 0.2
_SHARE_UNCHANGED = 0.3
_NUM_WORDINGS = 3000
_AS_OFTEN = (*TAUGHT, "swapped_options")
"""Interventions as often as they are taught: two swapped choices are the hardest to read."""


class Cut(NamedTuple):
    """A draft in tokens, and where each position of it ends."""

    ids: tuple[int, ...]
    ends: dict[str, int]


class Documents:
    """Draws training documents in a model's tokens, joined as the job joins them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Takes the tokenizer."""
        self.tokenizer = tokenizer
        self.style = DraftStyle(tokenizer, Tags(OPEN, CLOSE), is_chat=False)
        self._cut: Callable[[str], Cut] = cache(self._cut_draft)

    def draw(self, rng: np.random.Generator) -> Example:
        """One document of any kind about a problem of any kind."""
        item, chance = any_item(rng), float(rng.random())
        prompt = self.style.draft_prompt(as_problem(item, 0))
        cut = self._cut(item.draft)
        if chance < _SHARE_INTRA:
            return self._intra(prompt, item, cut, rng)
        if chance < _SHARE_INTRA + _SHARE_ANSWER:
            return self._answer(prompt, item, cut, rng)
        if chance < _SHARE_INTRA + _SHARE_ANSWER + _SHARE_DRILL:
            return self._drill(prompt, item, rng)
        return Example(tuple(prompt), (*cut.ids, *self._closed()))

    def _intra(self, prompt: list[int], item: Item, cut: Cut, rng: np.random.Generator) -> Example:
        situation = _situation(item, rng)
        position = list(cut.ends)[int(rng.integers(len(cut.ends)))]
        name = _AS_OFTEN[int(rng.integers(len(_AS_OFTEN)))]
        insertion = INSERTION_TYPES[int(rng.integers(len(INSERTION_TYPES)))]
        text = INTERVENTIONS[name].write(situation, insertion)
        written = continued(item, reaction(item.meets, name, insertion, position), text)
        given = (*prompt, *cut.ids[: cut.ends[position]], *self.style.insertion(text))
        return Example(given, (*encode(self.tokenizer, f"{written}\n"), *self._closed()))

    def _drill(self, prompt: list[int], item: Item, rng: np.random.Generator) -> Example:
        """A list of the choices in any order, and under which letter each of them stands."""
        text = f"{CHECK} {listed([item.choices[int(i)] for i in rng.permutation(len(item.choices))])}"
        named = named_choices(text)
        written = " ".join(placed(choice.split()[0], named) for choice in item.choices)
        return Example((*prompt, *self.style.insertion(text)), tuple(encode(self.tokenizer, written)))

    def _answer(self, prompt: list[int], item: Item, cut: Cut, rng: np.random.Generator) -> Example:
        answering = ("standard", "immediate")[int(rng.integers(2))]
        situation = _situation(item, rng)
        is_unchanged = rng.random() < _SHARE_UNCHANGED
        altered = [] if is_unchanged else self.style.insertion(direct_conclusion(situation))
        text = answered(item, item.letter if is_unchanged else situation.other, answering)
        closing = self.style.closing(immediate=answering == "immediate")
        written = (*encode(self.tokenizer, text), int(self.tokenizer.eos_token_id))
        return Example((*prompt, *cut.ids, *altered, *closing), written)

    def _closed(self) -> list[int]:
        return encode(self.tokenizer, CLOSE, parse_special=True)

    def _cut_draft(self, draft: str) -> Cut:
        ids = tuple(encode_continuation(self.tokenizer, f"{draft}\n"))
        steps = decompose(f"{draft}\n")
        ends = step_token_ends(lambda part: decode(self.tokenizer, part), ids, steps)
        return Cut(ids, {place.position: ends[place.cot_step_index] for place in places(steps)})


def train(out: Path, config: ThinkerConfig, progress: Callable[[str], None]) -> None:
    """Trains a thinker into a folder.

    Raises:
        ModelError: See `train_thinker`.
    """
    train_thinker(out, config, _wordings(), _drawer, progress)


def check(folder: Path | None) -> dict[str, float | int]:
    """Measures on how many texts a thinker, by default the shipped one, writes what is planted.

    Raises:
        DataError, ModelError: See `check_thinker`.
    """
    return check_thinker(Changes(_inserted, _altered_end), folder)


def _inserted(item: Item, rng: np.random.Generator) -> list[InsertedText]:
    situation = _situation(item, rng)
    return [
        InsertedText(name, insertion, INTERVENTIONS[name].write(situation, insertion))
        for name in TAUGHT
        for insertion in INSERTION_TYPES
    ]


def _altered_end(item: Item, rng: np.random.Generator) -> AlteredEnd:
    situation = _situation(item, rng)
    return AlteredEnd(direct_conclusion(situation), situation.other)


def _drawer(tokenizer: PreTrainedTokenizerBase) -> Draw:
    return Documents(tokenizer).draw


def _situation(item: Item, rng: np.random.Generator) -> Situation:
    letters = ascii_uppercase[: len(NOUNS)]
    others = [letter for letter in letters if letter != item.letter]
    corrupted = corrupt_by_rules(item.choices, letters.index(item.letter), rng=rng)
    return Situation(item.choices, item.letter, others[int(rng.integers(len(others)))], corrupted)


def _wordings() -> Iterator[str]:
    """Every text that the model reads or writes, for the tokenizer: a word of these is a token."""
    rng = np.random.default_rng([0, 1])
    yield IMMEDIATE_CUE
    for _ in range(_NUM_WORDINGS):
        item = any_item(rng)
        situation = _situation(item, rng)
        problem = as_problem(item, 0)
        shown = "".join(f"\n({letter}): {text}" for letter, text in zip(ascii_uppercase, problem.choices, strict=False))
        yield f"Human: Question: {problem.question}\n\nChoices:{shown}\n\nAssistant: \n{item.draft}\n"
        yield f"\n\n{direct_conclusion(situation)}\n\n"
        for answering in ("standard", "immediate"):
            yield answered(item, item.letter, answering)
        for name, insertion, text in _inserted(item, rng):
            yield f"\n\n{text}\n\n"
            for position in ("initial", "end"):
                yield continued(item, reaction(item.meets, name, insertion, position), text)
