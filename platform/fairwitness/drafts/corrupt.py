"""Makes a choice wrong by rules: another number, a negation put in or taken out, a name or word from another choice.

Pure, from the item's own generator. The first rule that changes the text into none of the choices is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

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
                others = [d for d in "123456789" if d != digit]
                for other in others[:3]:
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
    others = dict.fromkeys(
        word
        for i, choice in enumerate(choices)
        if i != index
        for word in _WORD.findall(choice)
        if word.casefold() not in own
    )
    for match in _WORD.finditer(text):
        for word in others:
            cased = word.capitalize() if match.group()[0].isupper() else word
            yield text[: match.start()] + cased + text[match.end() :]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
