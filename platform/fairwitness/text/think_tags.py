"""Where a thinking draft ends and the answer begins, in what a model wrote.

Pure: text in, character offsets out. Models differ in the name of the tags, in whether the chat template writes the
opening one, and in how often they get them wrong; nothing of that is repaired in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Irregularity = Literal["unopened", "unclosed", "empty", "doubled", "reopened"]


class Tags(NamedTuple):
    """The pair of tags around a draft, as the model writes them."""

    open: str = "<think>"
    close: str = "</think>"


@dataclass(frozen=True)
class DraftSpan:
    """A draft within a text.

    Attributes:
        start: First character of the draft, tags and the white space after the opening one excluded.
        end: One past its last character: where the closing tag begins, or the text's end.
        answer_start: First character of the answer stage; the text's length where there is none.
        irregular: What is unusual. `unopened`: no opening tag; `unclosed`: no closing tag, so there is no answer;
            `empty`: nothing but white space between the tags; `doubled`: an opening tag inside the draft, or a closing
            tag right after the first; `reopened`: another draft after the first, the answer is what follows the last.
    """

    start: int
    end: int
    answer_start: int
    irregular: tuple[Irregularity, ...]


def find_draft(text: str, tags: Tags = Tags(), *, prefilled: bool) -> DraftSpan:  # noqa: B008 (immutable)
    """Finds the draft in a model's output, special tokens shown.

    `prefilled` says that the prompt already wrote the opening tag; a model that writes it again is `doubled`.

    Raises:
        ValueError: A tag is empty, or both are the same.
    """
    if not tags.open or not tags.close or tags.open == tags.close:
        raise ValueError(f"tags {tags.open!r} and {tags.close!r}: two different, non-empty ones are needed")
    irregular: list[Irregularity] = []
    start, opened = _after_openings(text, tags.open)
    if opened > (0 if prefilled else 1):
        irregular.append("doubled")
    if not opened and not prefilled:
        irregular.append("unopened")
    end = text.find(tags.close, start)
    if end < 0:
        irregular.append("unclosed")
        end = answer = len(text)
    else:
        answer = _after_last_closing(text, end, tags, irregular)
    if tags.open in text[start:end] and "doubled" not in irregular:
        irregular.append("doubled")
    if not text[start:end].strip():
        irregular.append("empty")
    return DraftSpan(min(start, end), end, answer, tuple(irregular))


def _after_openings(text: str, tag: str) -> tuple[int, int]:
    """Where the draft's first word is, and how many opening tags stand before it."""
    position, count = _skip_space(text, 0), 0
    while text.startswith(tag, position):
        position, count = _skip_space(text, position + len(tag)), count + 1
    return position, count


def _after_last_closing(text: str, first: int, tags: Tags, irregular: list[Irregularity]) -> int:
    position = first + len(tags.close)
    while (again := text.find(tags.close, position)) >= 0:
        kind: Irregularity = "reopened" if text[position:again].strip() else "doubled"
        if kind not in irregular:
            irregular.append(kind)
        position = again + len(tags.close)
    return _skip_space(text, position)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position
