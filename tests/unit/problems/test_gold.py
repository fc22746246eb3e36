"""The correct choice, in every way it is written."""

from typing import Any

import pytest

from fairwitness.errors import DataError
from fairwitness.problems.choices import ChoiceSet, RawGold, gold_index, infer_gold_kind, is_unknown
from fairwitness.problems.config import GoldKind

FOUR = ChoiceSet(("red", "green", "blue", "Grey"))
NUMBERED = ChoiceSet(("red", "green", "blue", "grey"), ("1", "2", "3", "4"))
YES_NO = ChoiceSet(("Yes", "No"))


@pytest.mark.parametrize(
    ("value", "kind", "choices", "expected"),
    [
        ("B", "letter", FOUR, 1),
        (" b ", "letter", FOUR, 1),
        ("(C)", "letter", FOUR, 2),
        ("E", "letter", FOUR, None),
        (1, "letter", FOUR, None),
        ("2", "label", NUMBERED, 1),
        (2, "label", NUMBERED, 1),
        ("5", "label", NUMBERED, None),
        (0, "index0", FOUR, 0),
        ("3", "index0", FOUR, 3),
        (4, "index0", FOUR, None),
        (4, "index1", FOUR, 3),
        (2.0, "index1", FOUR, 1),
        (2.5, "index1", FOUR, None),
        (0, "index1", FOUR, None),
        (-1, "index0", FOUR, None),
        (True, "index0", FOUR, None),
        ("grey", "text", FOUR, 3),
        ("pink", "text", FOUR, None),
        ("x", "text", ChoiceSet(("x", "X")), None),
        (True, "bool", YES_NO, 0),
        ("false", "bool", YES_NO, 1),
        (True, "bool", FOUR, None),
    ],
)
def test_readings(value: Any, kind: GoldKind, choices: ChoiceSet, expected: int | None) -> None:
    assert gold_index(RawGold(value, choices), kind) == expected


@pytest.mark.parametrize(
    ("values", "choices", "expected"),
    [
        (["A", "D"], FOUR, "letter"),
        ([0, 3, 1], FOUR, "index0"),
        ([1, 4, 2], FOUR, "index1"),
        (["red", "Blue"], FOUR, "text"),
        ([True, False], YES_NO, "bool"),
        (["1", "4"], NUMBERED, "label"),
        (["1", "2"], NUMBERED, "label"),
        (["A", "B", "nonsense"], FOUR, "letter"),
        ([], FOUR, "letter"),
        (["nonsense"], FOUR, "letter"),
    ],
)
def test_the_reading_that_fits_most_is_inferred(values: list[Any], choices: ChoiceSet, expected: str) -> None:
    assert infer_gold_kind([RawGold(value, choices) for value in values], source="made") == expected


def test_numbers_that_could_start_at_0_or_1_are_not_guessed() -> None:
    with pytest.raises(DataError, match=r"made.*index0 or as index1.*gold_kind"):
        infer_gold_kind([RawGold(value, FOUR) for value in (1, 2, 3)], source="made")


def test_what_counts_as_not_known() -> None:
    assert all(map(is_unknown, (None, "", " ", float("nan"))))
    assert not any(map(is_unknown, (0, False, "A")))
