"""The choice that a text concludes with, as far as the text says it in so many words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

MIN_NAMED_CHARS = 4
"""Shorter choices, such as yes and no, occur in sentences that do not choose them."""

_CUE = re.compile(
    r"\b(?i:answer|option|choice)s?\b[^.\n()]{0,40}?(?:\(([A-Z])\)|\b(?:is|are)\s*:?\s*([A-Z])\b(?!['’\w]))"
)
_LETTER = re.compile(r"\(([A-Z])\)")


def stated_choice(text: str, choices: Sequence[str]) -> int | None:
    """The choice (0 for A) that a text states as its conclusion; None where it states none, or no single one.

    In this order: the last letter after a cue ("the correct answer is (B)", "option (C)"); the one letter in brackets;
    the one choice whose words occur. Texts that go through several choices and state no conclusion are not guessed at,
    and negation is not understood.

    Args:
        text: The text.
        choices: The texts of the choices, A first, at most 26.
    """
    letters = ascii_uppercase[: len(choices)]
    cued = [next(filter(None, match.groups())) for match in _CUE.finditer(text)]
    known = [letter for letter in cued if letter in letters]
    if known:
        return letters.index(known[-1])
    bracketed = {letter for letter in _LETTER.findall(text) if letter in letters}
    if len(bracketed) == 1:
        return letters.index(bracketed.pop())
    named = _named(text, choices)
    return named.pop() if len(named) == 1 else None


def _named(text: str, choices: Sequence[str]) -> set[int]:
    """Choices whose words occur in the text; one that is part of a longer choice counts only apart from it."""
    rest = " ".join(text.casefold().split())
    words = {index: " ".join(choice.casefold().split()).rstrip(".") for index, choice in enumerate(choices)}
    found = set()
    for index, wanted in sorted(words.items(), key=lambda item: -len(item[1])):
        pattern = rf"(?<!\w){re.escape(wanted)}(?!\w)"
        if len(wanted) >= MIN_NAMED_CHARS and re.search(pattern, rest):
            found.add(index)
            rest = re.sub(pattern, "\0", rest)
    return found
