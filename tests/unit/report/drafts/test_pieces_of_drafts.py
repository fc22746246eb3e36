"""Texts side by side, the choice of items, and the findings in sentences."""

from __future__ import annotations

import pandas as pd
import pytest

from fairwitness.analysis.drafts import Rate
from fairwitness.report.drafts.items import MAX_CHARS, Piece, chosen, differences, shortened
from fairwitness.report.drafts.page import DraftFinding, _cautions
from fairwitness.stats.bootstrap import Estimate
from tests.helpers.draft_runs import row


def marked(pieces: tuple[Piece, ...]) -> list[str]:
    return [piece.text for piece in pieces if piece.is_changed]


def test_what_differs_is_marked_in_whole_words() -> None:
    first, second = differences(
        "The sky is blue today. So the answer is B.", "The sky is green today, I think. So the answer is A."
    )
    assert marked(first) == ["blue today. ", "B."]
    assert marked(second) == ["green today, I think. ", "A."]


def rate_of(num_known: int, num_undefined: int) -> Rate:
    group = {"model": "m", "data_set": "d", "source": "own", "intervention": "shift", "insertion_type": "correct"}
    value = None if not num_known else 0.5
    estimate = Estimate(value, None, None, num_known / 2, num_known, num_known, "too few")
    return Rate(group, estimate, num_all=num_known + num_undefined, num_undefined=num_undefined)


def test_cautions_name_the_drafts_and_say_none() -> None:
    def cautions(num_usable: int, *rates: Rate) -> list[str]:
        return list(_cautions(rates, num_usable))

    assert cautions(0) == ["No draft could be used: nothing is known of this group."]
    assert cautions(2) == ["Only 2 drafts could be used: the intervals are wide."]
    assert cautions(30, rate_of(0, 96)) == ["None of 96 continuations has a verdict."]
    assert cautions(30, rate_of(50, 46)) == [
        "46 of 96 continuations have no verdict (48%), and may differ from the others."
    ]
    assert cautions(30, rate_of(90, 6)) == []
    found = DraftFinding({"model": "m", "data_set": "d", "source": "own"}, ("One.", "Two."), ("Three.",))
    assert found.lines() == "m on d, own drafts:\n  One.\n  Two."
    assert found.caution_lines() == ["m on d, own drafts: Three."]


def test_a_few_shared_words_are_no_agreement() -> None:
    first, second = differences("one two three and four five", "six seven and eight nine ten")
    assert marked(first) == ["one two three and four five"]
    assert marked(second) == ["six seven and eight nine ten"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("", "abc"), ("abc", "  "), ("a b", "a b"), (" a\n\n b ", "\tb\n a "), ("等等,答案是B。", "等等,答案是A。")],
)
def test_the_pieces_are_the_texts(first: str, second: str) -> None:
    for text, pieces in zip((first, second), differences(first, second), strict=True):
        assert "".join(piece.text for piece in pieces) == text


def test_equal_texts_and_texts_beside_nothing_are_not_marked() -> None:
    assert [marked(pieces) for pieces in differences("a b", "a b")] == [[], []]
    assert [marked(pieces) for pieces in differences("", "a b c d")] == [[], []]


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = "".join(f"{number:06d} " for number in range(4000))
    pieces = shortened((Piece(text[:9000]), Piece(text[9000:], is_changed=True)))
    note = next(piece for piece in pieces if piece.is_note)
    assert note.text.startswith(f"[{len(text) - MAX_CHARS:,} characters left out")
    kept = [piece.text for piece in pieces if not piece.is_note]
    assert sum(map(len, kept)) == MAX_CHARS
    assert text.startswith(kept[0])
    assert text.endswith(kept[-1])
    assert pieces[-1].is_changed
    assert shortened((Piece("short"),)) == (Piece("short"),)


def test_rare_outcomes_are_chosen_and_the_choice_does_not_depend_on_the_order_of_rows() -> None:
    place = {"model": "m", "data_set": "d", "source": "own", "scope_key": "s"}
    rows = [row({**place, "problem_id": f"p{n}", "key": f"d{n}"}) for n in range(50)]
    rows[31] = rows[31] | {"is_faithful": False}
    rows[17] = rows[17] | {"status": "failed", "is_faithful": None, "behaviour": None}
    frame = pd.DataFrame(rows)
    found = chosen(frame, 5)
    assert len(found) == 5
    assert {"p31", "p17"} <= set(found["problem_id"])
    turned = chosen(frame.iloc[::-1].reset_index(drop=True), 5)
    assert set(turned["problem_id"]) == set(found["problem_id"])
    assert chosen(frame, 50) is frame
    assert len(chosen(frame, 0)) == 0
