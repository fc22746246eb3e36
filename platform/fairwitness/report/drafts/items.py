"""What the page shows of single drafts: the inserted text at its place, what the model wrote with and without it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from string import ascii_uppercase
from typing import Any

import pandas as pd

from fairwitness.analysis.draft_figures import DraftRun
from fairwitness.analysis.drafts import outcome, reliance_pairs, with_outcomes
from fairwitness.report.format import is_missing

MAX_ITEMS = 200
"""Continuations that the page shows in full by default; the tables hold all."""
RULE = (
    "in turn from every combination of model, data set, source, kind of insertion, behaviour and outcome, so that rare "
    "outcomes are there too; within one, drafts in an order that does not depend on what was measured"
)
_KIND = ["model", "data_set", "source", "intervention", "insertion_type", "answering", "behaviour", "outcome"]


def chosen(rows: pd.DataFrame, max_items: int) -> pd.DataFrame:
    """At most `max_items` rows, in the order they came in; all where there are no more.

    The order of drafts is that of a hash of their problem's name, the same in every combination: what is shown comes
    from few drafts, each seen from several sides.

    Args:
        rows: Rows of `continuations`.
        max_items: Most rows; 0 gives none.
    """
    if len(rows) <= max_items:
        return rows
    lot = rows["problem_id"].map(lambda name: sha256(str(name).encode()).hexdigest())
    ordered = with_outcomes(rows).assign(lot=lot).sort_values(["lot", "key"], kind="stable")
    turn = ordered.groupby(_KIND, dropna=False, sort=True).cumcount()
    first = ordered.assign(turn=turn).sort_values(["turn", "lot", "key"], kind="stable").head(max_items)
    return rows.loc[sorted(first.index)]


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


TAIL_CHARS = 600
"""Characters before an insertion that are shown at once; the rest of the draft opens on demand."""
UNDECIDED = "undecided"

Row = Mapping[Any, Any]


@dataclass(frozen=True)
class StepView:
    """A step of a draft: its text, its label and the exploitation block that it belongs to, from 1."""

    text: str
    label: str
    block: int | None


@dataclass(frozen=True)
class ItemView:
    """One continuation.

    Attributes:
        row: Its row of `continuations`.
        outcome: faithful, unfaithful, undefined, truncated, skipped or failed.
        behaviour: correction, following or undecided; empty for answers.
        expected: The letters that would be faithful given the behaviour; empty where it is not known.
        phi: The letters of φ.
        reason: Why there is no verdict; None where there is one.
        folded: The draft up to the insertion, without its end.
        num_folded: Characters of that, left-out ones too.
        before: The end of the draft up to the insertion.
        original: What followed there without the insertion.
        perturbed: What the model wrote after it.
        relies: Draft reliance of the answer; None where undefined or not asked.
        other_answer: The letter given the other way (standard or immediate); None where there is none.
    """

    row: Row
    outcome: str
    behaviour: str
    expected: tuple[str, ...]
    phi: tuple[str, ...]
    reason: str | None
    folded: tuple[Piece, ...]
    num_folded: int
    before: str
    original: tuple[Piece, ...]
    perturbed: tuple[Piece, ...]
    relies: bool | None
    other_answer: str | None

    @property
    def is_answer(self) -> bool:
        """Whether it is of the answer stage."""
        return bool(self.row["dimension"] == "answer")

    @property
    def is_made(self) -> bool:
        """Whether the model wrote something."""
        return not is_missing(self.row["continuation_text"])

    def text(self, name: str) -> str:
        """A column as text; empty where it is null."""
        return "" if is_missing(self.row[name]) else str(self.row[name])


@dataclass(frozen=True)
class DraftView:
    """One draft and the continuations shown of it.

    Attributes:
        row: Its row of `drafts`.
        question: The problem's question.
        choices: Its choices by letter.
        gold: The right letter; None where it is not known.
        steps: Its first steps, up to as many characters as the page shows of a text.
        num_steps: How many it has.
        items: The continuations.
        num_all: Continuations that the run has of it.
        num_blocks: Number of its exploitation blocks.
    """

    row: Row
    question: str
    choices: tuple[tuple[str, str], ...]
    gold: str | None
    steps: tuple[StepView, ...]
    num_steps: int
    items: tuple[ItemView, ...]
    num_all: int
    num_blocks: int


def draft_views(run: DraftRun, *, max_items: int) -> list[DraftView]:
    """The drafts of the chosen continuations, in the order of model, data set, source and problem."""
    shown = chosen(run.rows, max_items)
    keys = list(dict.fromkeys(shown["draft_key"]))
    drafts = {str(row["key"]): row for row in run.drafts[run.drafts["key"].isin(keys)].to_dict("records")}
    problems = {str(row["key"]): row for row in run.problems.to_dict("records")}
    steps = {str(key): part.sort_values("cot_step_index") for key, part in run.steps.groupby("draft_key")}
    counts = run.rows["draft_key"].value_counts()
    pairs = {
        (str(row["draft_key"]), str(row["intervention"])): row
        for row in reliance_pairs(run.rows[run.rows["draft_key"].isin(keys)]).to_dict("records")
    }
    views = []
    for key in keys:
        draft, of_draft = drafts[key], steps.get(key, pd.DataFrame())
        own = shown[shown["draft_key"] == key].to_dict("records")
        items = [_item(row, draft, of_draft, pairs.get((key, row["intervention"]))) for row in own]
        views.append(_draft(draft, problems.get(str(draft["problem_key"])), of_draft, items, int(counts[key])))
    return views


def _draft(draft: Row, problem: Row | None, steps: pd.DataFrame, items: Sequence[ItemView], num_all: int) -> DraftView:
    choices = list(problem["choices"]) if problem is not None and problem["choices"] is not None else []
    return DraftView(
        draft,
        "" if problem is None or is_missing(problem["question"]) else str(problem["question"]),
        tuple(zip(ascii_uppercase, map(str, choices), strict=False)),
        None if problem is None or is_missing(problem["gold"]) else str(problem["gold"]),
        tuple(
            StepView(
                str(draft["draft_text"])[int(one["char_start"]) : int(one["char_end"])],
                str(one["label"]),
                None if is_missing(one["block_index"]) else int(one["block_index"]) + 1,
            )
            for one in steps.to_dict("records")
            if one["char_end"] <= MAX_CHARS
        ),
        len(steps),
        tuple(items),
        num_all,
        0 if is_missing(draft["num_blocks"]) else int(draft["num_blocks"]),
    )


def _item(row: Row, draft: Row, steps: pd.DataFrame, pair: Row | None) -> ItemView:
    verdict = None if is_missing(row["is_faithful"]) else bool(row["is_faithful"])
    text = str(draft["draft_text"] or "")
    is_answer = row["dimension"] == "answer"
    at = len(text) if is_answer else _char_of(steps, row["inserted_at"])
    before = "" if at is None else text[:at].lstrip()
    rest = "" if is_answer or at is None else text[at:]
    if is_answer and row["answering"] == "standard":
        rest = "" if is_missing(draft["answer_text"]) else str(draft["answer_text"])
    written = "" if is_missing(row["continuation_text"]) else str(row["continuation_text"])
    original, perturbed = differences(rest, written)
    phi = tuple(row["expected_letters"]) if row["expected_letters"] is not None else ()
    other = {"standard": "immediate", "immediate": "standard"}.get(str(row["answering"]), "")
    known = pair if is_answer and pair is not None else {}
    return ItemView(
        row=row,
        outcome=outcome(verdict, str(row["status"])),
        behaviour="" if is_answer else UNDECIDED if is_missing(row["behaviour"]) else str(row["behaviour"]),
        expected=_expected(row, phi),
        phi=phi,
        reason=None if verdict is not None else _reason(row),
        folded=shortened((Piece(before[:-TAIL_CHARS]),)) if len(before) > TAIL_CHARS else (),
        num_folded=max(0, len(before) - TAIL_CHARS),
        before=before[-TAIL_CHARS:],
        original=shortened(original),
        perturbed=shortened(perturbed),
        relies=None if is_missing(known.get("relies")) else bool(known["relies"]),
        other_answer=None if is_missing(known.get(other)) else str(known[other]),
    )


def _expected(row: Row, phi: tuple[str, ...]) -> tuple[str, ...]:
    if row["dimension"] == "answer" or row["behaviour"] == "following":
        return phi
    return (str(row["base_letter"]),) if row["behaviour"] == "correction" else ()


def _reason(row: Row) -> str:
    return "no reason was recorded" if is_missing(row["reason"]) else str(row["reason"])


def _char_of(steps: pd.DataFrame, num_tokens: Any) -> int | None:
    """Where a step ends, in characters, that ends after so many tokens; None where there is none."""
    if is_missing(num_tokens) or not len(steps):
        return None
    ends = steps[steps["token_end"] == num_tokens]["char_end"]
    return int(ends.max()) if len(ends) else None
