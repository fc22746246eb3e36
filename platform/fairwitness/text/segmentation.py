"""Lossless segmentation of a chain of thought into sentences.

Two proposals are united: Punkt (the `nupunkt` package), which knows abbreviations but takes some common words for
them, and spaCy's punctuation rule, which does not know them, so that its borders count only before a capital letter or
a list number. Three rules of our own are laid over both: a line break ends a piece; a full-width full stop, question or
exclamation mark does too, for Chinese and Japanese put no space after it; a list number that opens a piece ("1.") is a
piece by itself, as in the published FUR data. The choice and its measured agreement are in
docs/decisions/sentences-and-content-words.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spacy.language import Language

RULES_VERSION = 2
_LIST_NUMBER = re.compile(r"\d{1,3}\.(?=\s)")
_LINE_BREAK = re.compile(r"[\r\n]")
_SPACE = re.compile(r"\s+")
_FULL_WIDTH_END = re.compile(r"[\u3002\uff01\uff1f\uff61]+[”’」』\uff09)\"']*")


class Span(NamedTuple):
    """Half-open range of character offsets."""

    start: int
    end: int


def segment(text: str) -> list[Span]:
    """Cuts a text into sentences without losing a character.

    Args:
        text: Any text.

    Returns:
        Spans that tile [0, len(text)) in order; none is empty. White space belongs to the piece before it, at the start
        of the text to the first piece. Empty text gives no span, text of white space only gives one.
    """
    if not text:
        return []
    proposals = (0, *_punkt_starts(text), *_punctuation_starts(text), *_line_starts(text), *_full_width_starts(text))
    starts = {_skip_space(text, start) for start in proposals}
    for start in sorted(starts):
        number = _LIST_NUMBER.match(text, start)
        if number:
            starts.add(_skip_space(text, number.end()))
    starts -= {_skip_space(text, 0), len(text)}
    return [Span(start, end) for start, end in pairwise([0, *sorted(starts), len(text)])]


def segmenter_revision() -> str:
    """Names and versions of what decides the sentence borders; part of every key that depends on them."""
    return f"nupunkt-{version('nupunkt')}-spacy-{version('spacy')}-rules-{RULES_VERSION}"


def _punkt_starts(text: str) -> list[int]:
    import nupunkt

    return [start for start, _ in nupunkt.sent_spans(text)]


def _punctuation_starts(text: str) -> Iterator[int]:
    for sentence in _punctuation_rule()(text).sents:
        start = _before_opening_marks(text, _skip_space(text, sentence.start_char))
        if _LIST_NUMBER.match(text, start) or _begins_with_capital(text, start):
            yield start


def _line_starts(text: str) -> list[int]:
    return [found.end() for found in _LINE_BREAK.finditer(text)]


def _full_width_starts(text: str) -> list[int]:
    return [found.end() for found in _FULL_WIDTH_END.finditer(text)]


@cache
def _punctuation_rule() -> Language:
    import spacy

    rule = spacy.blank("en")
    rule.add_pipe("sentencizer")
    # The limit is there for parsers, which need far more memory for a character than this rule does.
    rule.max_length = sys.maxsize
    return rule


def _before_opening_marks(text: str, start: int) -> int:
    """Moves a border from behind the opening quote, bracket or dash of the next sentence to before it."""
    last_word_end = start
    while last_word_end and not text[last_word_end - 1].isalnum():
        last_word_end -= 1
    space = _SPACE.search(text, last_word_end, start)
    return space.end() if space else start


def _begins_with_capital(text: str, start: int) -> bool:
    first = next((char for char in text[start:] if char.isalnum()), "")
    return first.isalpha() and not first.islower()


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start
