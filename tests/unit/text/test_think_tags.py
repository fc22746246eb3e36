"""Drafts found between tags of any name, regular or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.text.think_tags import Tags, find_draft

SEED = Tags("<seed:think>", "</seed:think>")


@pytest.mark.parametrize(
    ("text", "prefilled", "draft", "answer", "irregular"),
    [
        ("<think>\nA then B.\n</think>\n\nIt is B.", False, "A then B.\n", "It is B.", ()),
        ("\nA then B.</think>It is B.", True, "A then B.", "It is B.", ()),
        ("A then B.</think>It is B.", False, "A then B.", "It is B.", ("unopened",)),
        ("<think>A then", False, "A then", "", ("unclosed",)),
        ("It is B.", False, "It is B.", "", ("unopened", "unclosed")),
        ("<think>\n\n</think>\nB", False, "", "B", ("empty",)),
        ("</think>B", True, "", "B", ("empty",)),
        ("<think><think>A.</think>B", False, "A.", "B", ("doubled",)),
        ("<think>A.</think>B", True, "A.", "B", ("doubled",)),
        ("<think>A. <think>C.</think>B", False, "A. <think>C.", "B", ("doubled",)),
        ("<think>A.</think></think>B", False, "A.", "B", ("doubled",)),
        ("<think>A.</think>No. <think>C.</think>B", False, "A.", "B", ("reopened",)),
        ("", True, "", "", ("unclosed", "empty")),
    ],
)
def test_drafts(text: str, prefilled: bool, draft: str, answer: str, irregular: tuple[str, ...]) -> None:
    span = find_draft(text, prefilled=prefilled)
    assert text[span.start : span.end] == draft
    assert text[span.answer_start :] == answer
    assert span.irregular == irregular


def test_tags_of_another_name() -> None:
    text = "<seed:think>one</seed:think>two"
    span = find_draft(text, SEED, prefilled=False)
    assert (text[span.start : span.end], text[span.answer_start :], span.irregular) == ("one", "two", ())


@pytest.mark.parametrize("tags", [Tags("", "</a>"), Tags("<a>", ""), Tags("<a>", "<a>")])
def test_unusable_tags(tags: Tags) -> None:
    with pytest.raises(ValueError, match="two different"):
        find_draft("x", tags, prefilled=False)


@given(st.lists(st.sampled_from(["<think>", "</think>", "word", " ", "\n"]), max_size=12), st.booleans())
def test_offsets_are_ordered_and_the_first_closing_tag_ends_the_draft(parts: list[str], prefilled: bool) -> None:
    text = "".join(parts)
    span = find_draft(text, prefilled=prefilled)
    assert 0 <= span.start <= span.end <= span.answer_start <= len(text)
    assert "</think>" not in text[span.start : span.end]
    assert "</think>" not in text[span.answer_start :]
    assert ("unclosed" in span.irregular) == ("</think>" not in text)
