"""What differs between two texts, in whole words, for a reader who sees them side by side. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_CHARS = 12_000
"""Longest text that the page shows; of a longer one the middle is left out."""
_TAIL_CHARS = 4_000
_MIN_SHARED_WORDS = 3
_WORD = re.compile(r"^\s+|\S+\s*")


@dataclass(frozen=True)
class Piece:
    """A part of a text: shared with the other text, or not, or a note where some is left out."""

    text: str
    is_changed: bool = False
    is_note: bool = False


def differences(first: str, second: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both texts in pieces; joined, the pieces are the texts. Fewer than three shared words in a row count as changed.

    An empty text leaves the other unmarked: there is nothing to compare it with.
    """
    if not first.strip() or not second.strip():
        return _whole(first), _whole(second)
    words_a, words_b = _WORD.findall(first), _WORD.findall(second)
    matcher = SequenceMatcher(None, [w.strip() for w in words_a], [w.strip() for w in words_b])
    pieces_a: list[Piece] = []
    pieces_b: list[Piece] = []
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        is_shared = kind == "equal" and (a_end - a >= _MIN_SHARED_WORDS or a_end - a == len(words_a) == len(words_b))
        _add(pieces_a, "".join(words_a[a:a_end]), is_changed=not is_shared)
        _add(pieces_b, "".join(words_b[b:b_end]), is_changed=not is_shared)
    return tuple(pieces_a), tuple(pieces_b)


def shortened(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces of a text, its middle left out where it is longer than the page shows; the end states conclusions."""
    total = sum(len(piece.text) for piece in pieces)
    if total <= MAX_CHARS:
        return pieces
    head = _taken(pieces, MAX_CHARS - _TAIL_CHARS)
    backwards = tuple(Piece(p.text[::-1], p.is_changed, p.is_note) for p in reversed(pieces))
    tail = tuple(Piece(p.text[::-1], p.is_changed, p.is_note) for p in reversed(_taken(backwards, _TAIL_CHARS)))
    note = Piece(f"[{total - MAX_CHARS:,} characters left out; they are in the tables]", is_note=True)
    return (*head, note, *tail)


def _taken(pieces: tuple[Piece, ...], num_chars: int) -> tuple[Piece, ...]:
    taken = []
    for piece in pieces:
        if num_chars <= 0:
            break
        taken.append(Piece(piece.text[:num_chars], piece.is_changed, piece.is_note))
        num_chars -= len(piece.text)
    return tuple(taken)


def _add(pieces: list[Piece], text: str, *, is_changed: bool) -> None:
    if not text:
        return
    if pieces and pieces[-1].is_changed == is_changed:
        text = pieces.pop().text + text
    pieces.append(Piece(text, is_changed))


def _whole(text: str) -> tuple[Piece, ...]:
    return (Piece(text),) if text else ()
