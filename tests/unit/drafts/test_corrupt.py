"""Choices made wrong by rules: numbers, negations, words of other choices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.drafts.writing import corrupt_by_rules


def corrupted(*choices: str, index: int = 0, seed: int = 0) -> str | None:
    return corrupt_by_rules(choices, index, rng=np.random.default_rng(seed))


def test_a_number_changes_one_digit() -> None:
    found = corrupted("39%", "24%")
    assert found is not None
    assert found.endswith("%")
    assert sum(a != b for a, b in zip(found, "39%", strict=True)) == 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("The moon is a planet", "The moon is not a planet"),
        ("Ice does not float", "Ice does float"),
        ("Always", "never"),
    ],
)
def test_a_negation_is_put_in_or_taken_out(text: str, wrong: str) -> None:
    assert corrupted(text, "Something else") == wrong


def test_a_word_of_another_choice_is_put_in() -> None:
    assert corrupted("red fox", "grey owl") in {"grey fox", "owl fox", "red grey", "red owl"}


@pytest.mark.parametrize("choices", [("x", "y"), ("red", "blue"), ("", "a")])
def test_nothing_to_change(choices: tuple[str, str]) -> None:
    assert corrupted(*choices) is None


@given(st.lists(st.text(max_size=20), min_size=2, max_size=6), st.integers(0, 2**32 - 1))
def test_never_one_of_the_choices_and_the_same_for_the_same_seed(choices: list[str], seed: int) -> None:
    found = corrupted(*choices, seed=seed)
    assert found == corrupted(*choices, seed=seed)
    assert found is None or found.casefold().split() not in [choice.casefold().split() for choice in choices]
