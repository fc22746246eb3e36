"""The one choice that a text is about, where it names no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

MIN_NAMED_CHARS = 4
"""Shorter choices, such as yes and no, occur in sentences that do not choose them."""

_LETTER = re.compile(r"\(([A-Z])\)")


def only_choice(text: str, choices: Sequence[str]) -> str | None:
    """Letter of the only choice that a text names: the one letter in brackets, else the one choice whose words occur.

    None where several are named, or none. Negation is not understood: a text that rejects one choice and names no
    other is taken to be about it.

    Args:
        text: The text.
        choices: The texts of the choices, A first, at most 26.
    """
    letters = ascii_uppercase[: len(choices)]
    bracketed = {letter for letter in _LETTER.findall(text) if letter in letters}
    if bracketed:
        return bracketed.pop() if len(bracketed) == 1 else None
    named = _named(text, choices)
    return letters[named[0]] if len(named) == 1 else None


def _named(text: str, choices: Sequence[str]) -> list[int]:
    """Choices whose words occur in the text; one that is part of a longer choice counts only apart from it."""
    rest = " ".join(text.casefold().split())
    words = [" ".join(choice.casefold().split()).rstrip(".") for choice in choices]
    found = []
    for index in sorted(range(len(words)), key=lambda index: -len(words[index])):
        pattern = rf"(?<!\w){re.escape(words[index])}(?!\w)"
        if len(words[index]) >= MIN_NAMED_CHARS and re.search(pattern, rest):
            found.append(index)
            rest = re.sub(pattern, "\0", rest)
    return found
