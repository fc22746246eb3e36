"""The only choice that a text names."""

from __future__ import annotations

import pytest

from fairwitness.text.conclusions import only_choice

ANIMALS = ("red fox", "fox", "brown bear.", "owl")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("It sleeps in a den, so it is a Red  Fox.", "A"),
        ("The brown bear sleeps.", "C"),
        ("Bears are brown.", None),
        ("The red fox digs; the brown bear sleeps.", None),
        ("The owl hoots.", None),
        ("An owlish creature.", None),
        ("I think (B) fits.", "B"),
        ("(A) no. (B) no.", None),
        ("(A) is wrong, so not the brown bear.", "A"),
        ("(E) is none of them, but the red fox is.", "A"),
        ("", None),
    ],
)
def test_only_choice(text: str, letter: str | None) -> None:
    assert only_choice(text, ANIMALS) == letter


def test_a_choice_inside_a_longer_one_does_not_count() -> None:
    assert only_choice("We saw cut grass.", ("grass", "cut grass")) == "B"
    assert only_choice("We saw cut grass and other grass.", ("grass", "cut grass")) is None
