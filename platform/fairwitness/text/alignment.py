"""Which characters each generated token stands for, and which tokens a step or a word consists of.

Everything here works on the ids that the model generated; text is never tokenised again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from fairwitness.text.content_words import Word
from fairwitness.text.segmentation import Span

# A character has at most four bytes, so a text that has not gone on after eight tokens needs more than the window.
_WINDOW_TOKENS = 8
_EAGER_TOKENS = 32


class AlignedText(NamedTuple):
    """A decoded text with the characters of each of its tokens.

    Attributes:
        text: What the ids decode to.
        spans: One span per id; they tile [0, len(text)) in order and may be empty.
    """

    text: str
    spans: list[Span]


def align_tokens(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> AlignedText:
    """Finds the characters of every token by decoding a short window that moves along the ids.

    A token that only begins a character (byte-level tokenizers split emoji and CJK) gets an empty span where the
    character stands; the token that completes it gets the character. Tokens that decode to nothing get empty
    spans too. Among bytes that form no character, a token may get the text of a few before it: some decoders spell such
    a run as a whole. The window always starts at an earlier token, so a decoder that drops the space at the start of a
    text drops it here only where it does so in the whole text. Time is linear in the number of ids, but for runs of
    broken bytes or of ids without text, where all ids up to there are decoded again now and then.

    Args:
        decode: Decodes ids to text; the same ids always give the same text.
        ids: The generated ids.

    Returns:
        The text, equal to `decode(ids)`, and one span per id.
    """
    if not ids:
        return AlignedText("", [])
    text = decode(ids)
    ends: list[int] = []
    window = fresh = end = 0
    known = ""
    for index in range(len(ids)):
        num_pending = index - fresh
        piece = ""
        if num_pending < _WINDOW_TOKENS:
            piece = decode(ids[window : index + 1])[len(known) :]
        elif num_pending <= _EAGER_TOKENS or num_pending & (num_pending - 1) == 0:
            prefix = decode(ids[: index + 1])
            piece = prefix[end:] if text.startswith(prefix) else ""
        if piece and text.startswith(piece, end):
            end += len(piece)
            window, fresh = fresh, index + 1
            known = decode(ids[window:fresh])
        ends.append(end)
    ends[-1] = len(text)
    return AlignedText(text, [Span(start, stop) for start, stop in zip([0, *ends], ends, strict=False)])


def tokens_of_steps(token_spans: Sequence[Span], text: str, cot_steps: Sequence[Span]) -> list[range]:
    """The tokens of every step.

    A token belongs to the step that holds its first character that is not white space (its start, when it has none).

    Args:
        token_spans: Spans of the tokens, in order.
        text: The text that both kinds of span refer to.
        cot_steps: Spans that tile the text, as `segment` gives them.

    Returns:
        One range of token indices per step: disjoint, in order, together all tokens. A step whose characters all come
        from a token of the step before has an empty range. No steps give an empty list.
    """
    if not cot_steps:
        return []
    starts = [span.start for span in cot_steps]
    owners = [max(0, bisect_right(starts, _anchor(text, span)) - 1) for span in token_spans]
    bounds = [bisect_right(owners, number - 1) for number in range(len(cot_steps) + 1)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


def content_positions(token_spans: Sequence[Span], words: Sequence[Word]) -> list[list[int]]:
    """The tokens of every word.

    A token counts when it shares a character with the word, or is empty and stands inside it (it then carries the
    first bytes of a character). A token that two words share goes to the first of them.

    Args:
        token_spans: Spans of the tokens, in order.
        words: Words in order of their start, with offsets into the same text.

    Returns:
        Token indices per word, ascending; no index occurs twice. A word without a token of its own has an empty list.
    """
    positions: list[list[int]] = []
    first = 0
    for word in words:
        while first < len(token_spans) and _is_before(token_spans[first], word.start):
            first += 1
        stop = first
        while stop < len(token_spans) and token_spans[stop].start < word.end:
            stop += 1
        positions.append(list(range(first, stop)))
        first = stop
    return positions


def _anchor(text: str, span: Span) -> int:
    piece = text[span.start : span.end]
    stripped = piece.lstrip()
    return span.start + len(piece) - len(stripped) if stripped else span.start


def _is_before(span: Span, position: int) -> bool:
    return span.start < position if span.start == span.end else span.end <= position
