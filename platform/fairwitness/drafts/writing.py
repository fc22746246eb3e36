"""Texts that an intervention needs: a wrong version of the concluded choice, a reasoned conclusion for another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.plan import other_letter
from fairwitness.drafts.reading import question, shown
from fairwitness.drafts.steps import DraftRecord
from fairwitness.judges.protocol import ChatModel, ChatPrompt
from fairwitness.problems.draws import item_rng
from fairwitness.text.conclusions import find_conclusion

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_NEGATIONS = (
    (re.compile(r"\b(is|are|was|were|can|does|do|did|will|would|should|has|have|had)\s+not\b", re.IGNORECASE), r"\1"),
    (re.compile(r"\b(is|are|was|were|can|will|would|should)\b(?!\s+not)", re.IGNORECASE), r"\1 not"),
    (re.compile(r"\b(always)\b", re.IGNORECASE), "never"),
    (re.compile(r"\b(never)\b", re.IGNORECASE), "always"),
    (re.compile(r"\b(increase)", re.IGNORECASE), "decrease"),
    (re.compile(r"\b(decrease)", re.IGNORECASE), "increase"),
)


def corrupt_by_rules(choices: Sequence[str], index: int, *, rng: np.random.Generator) -> str | None:
    """A wrong version of one choice, unlike every choice; None where no rule gives one.

    Args:
        choices: Texts of all choices.
        index: The choice to make wrong.
        rng: Decides among the possible changes.
    """
    taken = {_folded(choice) for choice in choices}
    for rule in (_numbers, _negations, _words):
        found = [text for text in rule(choices, index) if _folded(text) not in taken]
        if found:
            return found[int(rng.integers(len(found)))]
    return None


Rule = Callable[[Sequence[str], int], Iterator[str]]


def _numbers(choices: Sequence[str], index: int) -> Iterator[str]:
    text = choices[index]
    for match in _NUMBER.finditer(text):
        digits = match.group()
        for place, digit in enumerate(digits):
            if digit.isdigit():
                # A first digit of 0 would make another length, not another number.
                for other in [d for d in "123456789" if d != digit][:3]:
                    changed = digits[:place] + other + digits[place + 1 :]
                    yield text[: match.start()] + changed + text[match.end() :]


def _negations(choices: Sequence[str], index: int) -> Iterator[str]:
    text = choices[index]
    for pattern, replacement in _NEGATIONS:
        changed = pattern.sub(replacement, text, count=1)
        if changed != text:
            yield changed


def _words(choices: Sequence[str], index: int) -> Iterator[str]:
    """One word replaced by a word of another choice."""
    text = choices[index]
    own = {word.casefold() for word in _WORD.findall(text)}
    words = (word for i, choice in enumerate(choices) if i != index for word in _WORD.findall(choice))
    others = dict.fromkeys(word for word in words if word.casefold() not in own)
    for match in _WORD.finditer(text):
        for word in others:
            cased = word.capitalize() if match.group()[0].isupper() else word
            yield text[: match.start()] + cased + text[match.end() :]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


MAX_CHOICE_TOKENS, MAX_CONCLUSION_TOKENS = 200, 400
SHOWN_CHARS = 6000
"""Characters of a draft's end that a writer is shown."""


class Texts(NamedTuple):
    """Texts for one draft; None where there is none."""

    corrupted: str | None
    plausible: str | None


class Writer:
    """Writes by rules or asks a model."""

    def __init__(self, config: DraftFaithfulnessConfig, model: ChatModel | None) -> None:
        """Takes the model; None for the rules."""
        self._config, self._model = config, model

    def write(self, records: Sequence[DraftRecord]) -> Mapping[str, Texts]:
        """Texts by problem id, for drafts whose conclusion is known."""
        corrupted, plausible = self._corrupted(records), self._conclusions(records)
        names = [record.problem.problem_id for record in records]
        return dict(zip(names, map(Texts, corrupted, plausible), strict=True))

    def _corrupted(self, records: Sequence[DraftRecord]) -> list[str | None]:
        if not self._config.corrupts:
            return [None] * len(records)
        if self._config.corruptor == "rules":
            return [self._corrupted_by_rules(record) for record in records]
        prompts = [question("draft_corruption").fill(_with_choice(r, _index(r))) for r in records]
        replies = self._ask(prompts, MAX_CHOICE_TOKENS)
        return [_usable_choice(record, reply) for record, reply in zip(records, replies, strict=True)]

    def _corrupted_by_rules(self, record: DraftRecord) -> str | None:
        rng = item_rng(self._config.seed, record.problem.problem_id, "corrupt")
        return corrupt_by_rules(record.problem.choices, _index(record), rng=rng)

    def _conclusions(self, records: Sequence[DraftRecord]) -> list[str | None]:
        if "plausible" not in self._config.conclusions:
            return [None] * len(records)
        letters = [other_letter(r.problem, r.conclusion or "", seed=self._config.seed) for r in records]
        prompts = []
        for record, letter in zip(records, letters, strict=True):
            values = _with_choice(record, ascii_uppercase.index(letter))
            end = record.text[-SHOWN_CHARS:]
            prompts.append(question("draft_plausible").fill({**values, "draft": end, "letter": letter}))
        replies = self._ask(prompts, MAX_CONCLUSION_TOKENS)
        return [_usable_conclusion(*one) for one in zip(records, letters, replies, strict=True)]

    def _ask(self, prompts: Sequence[ChatPrompt], max_tokens: int) -> list[str | None]:
        assert self._model is not None
        found: list[str | None] = [None] * len(prompts)
        for position, reply in self._model.replies(prompts, max_tokens=max_tokens):
            found[position] = reply.text
        return found


def _usable_choice(record: DraftRecord, reply: str | None) -> str | None:
    """The reply's one line, unless it is empty, long, or one of the choices."""
    lines = [line.strip().strip("\"'") for line in (reply or "").splitlines() if line.strip()]
    if len(lines) != 1 or len(lines[0]) > 4 * max(map(len, record.problem.choices)) + 40:
        return None
    return None if _folded(lines[0]) in map(_folded, record.problem.choices) else lines[0]


def _usable_conclusion(record: DraftRecord, letter: str, reply: str | None) -> str | None:
    """The reply, if it concludes the letter it was to conclude."""
    found = find_conclusion(reply, record.problem.choices) if reply else None
    return reply.strip() if reply and found and found.letter == letter else None


def _index(record: DraftRecord) -> int:
    return ascii_uppercase.index(record.conclusion or "")


def _with_choice(record: DraftRecord, index: int) -> dict[str, str]:
    return {**shown(record.problem), "choice": record.problem.choices[index]}
