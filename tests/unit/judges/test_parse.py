"""Replies with one verdict, none, an unknown one, and two that contradict each other."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.errors import ItemError
from fairwitness.judges.parse import parse_verdict

VERDICTS = ("same", "different", "unclear")


@pytest.mark.parametrize(
    "reply",
    [
        "verdict: same",
        "Both argue for B.\nVerdict: Same",
        "Both argue for B.\n\n**Verdict:** same.\n",
        "- verdict = `same`",
        "Final verdict: **same**",
        "verdict: same\nI say it again.\nverdict: SAME",
        '{"reason": "both say B", "verdict": "same"}',
        '```json\n{"verdict": "Same"}\n```',
        "<think>verdict: different? No.</think>\nverdict: same",
        "verdict: different? No.</think>\nverdict: same",
    ],
)
def test_the_verdict_is_found(reply: str) -> None:
    assert parse_verdict(reply, VERDICTS) == "same"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("", "has no line"),
        ("They argue for the same choice.", "has no line"),
        ("I think the verdict: same", "has no line"),
        ("<think>verdict: same", "has no line"),
        ("verdict: equal", "verdict 'equal' is none of same, different, unclear"),
        ("verdict: same or different", "is none of"),
        ("verdict:", "verdict '' is none of"),
        ("verdict: same\nverdict: maybe", "'maybe' is none of"),
        ('{"verdict": ["same"]}', "is none of"),
        ('{"reason": "verdict: same"}', "has no line"),
        ("verdict: " + "x" * 500, "…' is none of"),
    ],
)
def test_no_verdict_has_a_reason(reply: str, message: str) -> None:
    with pytest.raises(ItemError, match=message):
        parse_verdict(reply, VERDICTS)


@pytest.mark.parametrize(
    "reply",
    [
        "verdict: same\nOn reflection:\nverdict: different",
        '{"verdict": "same", "verdict": "different"}',
        '{"first": {"verdict": "same"}, "verdict": "different"}',
        "verdict: same\nverdict: odd\nverdict: different",
    ],
)
def test_two_verdicts_contradict_each_other(reply: str) -> None:
    with pytest.raises(ItemError, match="contradicts itself: its verdicts are same and different"):
        parse_verdict(reply, VERDICTS)


@given(st.text(max_size=300))
def test_any_text_gives_a_verdict_or_a_reason(reply: str) -> None:
    with suppress(ItemError):
        assert parse_verdict(reply, VERDICTS) in VERDICTS
