"""The five-point scale on which raters say how far a step supports the answer (FUR, App. J)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

LABELS: Mapping[int, str] = MappingProxyType(
    {
        5: "Fully supportive",
        4: "Mostly supportive",
        3: "Moderately supportive",
        2: "Slightly supportive",
        1: "Not supportive at all",
    }
)
"""Rating to its words, the best first."""

_VALUES = {"fully": 5, "mostly": 4, "moderately": 3, "slightly": 2, "not at all": 1}
_NUMBER = re.compile(r"[1-5](\.0+)?")


def parse_rating(text: str) -> int | None:
    """Reads a rating: a number from 1 to 5 or the words of the scale, in any case, with or without "supportive".

    Returns:
        1 (not at all) to 5 (fully); None for empty text.

    Raises:
        ValueError: It is neither; the message says what is possible.
    """
    text = text.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return int(text[0])
    words = " ".join(re.sub(r"[^a-z]+", " ", text.casefold().replace("supportive", " ")).split())
    if words in _VALUES and not any(char.isdigit() for char in text):
        return _VALUES[words]
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ValueError(f"{shown!r} is no rating; use 1 to 5 or {', '.join(LABELS.values())}")
