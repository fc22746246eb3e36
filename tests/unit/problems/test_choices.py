"""Every documented shape of choices, and what is refused."""

from typing import Any

import pytest

from fairwitness.problems.choices import ChoiceSet, choices_of_columns, parse_choices
from fairwitness.problems.records import FieldError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["x", "y"], ChoiceSet(("x", "y"))),
        ([1, 2.5], ChoiceSet(("1", "2.5"))),
        ([{"text": "x", "label": "1"}, {"label": "2", "text": "y"}], ChoiceSet(("x", "y"), ("1", "2"))),
        ({"text": ["x", "y"], "label": ["A", "B"]}, ChoiceSet(("x", "y"), ("A", "B"))),
        ({"text": ["x", "y"], "label": [0, 1]}, ChoiceSet(("x", "y"), ("0", "1"))),
        ({"A": "x", "B": "y"}, ChoiceSet(("x", "y"), ("A", "B"))),
        ({"A": 0, "B": 1}, ChoiceSet(("0", "1"), ("A", "B"))),
        ({"x": 0, "y": 1}, ChoiceSet(("x", "y"), marked=1)),
        ({"choices": ["x", "y"], "labels": [1, 0]}, ChoiceSet(("x", "y"), marked=0)),
        ("['x', 'y\\'s']", ChoiceSet(("x", "y's"))),
        ('["x", "y"]', ChoiceSet(("x", "y"))),
        ([" x ", "y"], ChoiceSet(("x", "y"))),
    ],
)
def test_shapes(value: Any, expected: ChoiceSet) -> None:
    assert parse_choices(value, "choices") == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "holds nothing"),
        (7, "holds a int"),
        ("x, y", "neither a JSON nor a Python list"),
        ("__import__('os')", "neither a JSON nor a Python list"),
        (["x"], "has 1 choices"),
        ([], "has 0 choices"),
        ([str(number) for number in range(27)], "has 27 choices, 2 to 26"),
        (["x", " "], "choice 2 of 2 is empty"),
        (["x", None], "a choice is nothing"),
        ([{"text": "x"}, {"text": "y"}], "has no 'label'"),
        ([{"label": "A", "value": "x"}, {"label": "B", "text": "y"}], "has no 'text'"),
        ({"text": ["x", "y"], "label": ["A"]}, "not as many labels"),
        ({"x": 1, "y": 1}, "marks 2 choices"),
        ({"x": 0, "y": 0}, "marks 0 choices"),
    ],
)
def test_refusals_name_the_field(value: Any, reason: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_choices(value, "options")
    assert caught.value.field == "options"
    assert reason in caught.value.reason


def test_columns_drop_empty_ones_at_the_end_only() -> None:
    assert choices_of_columns(["x", "y", None, ""], "A").texts == ("x", "y")
    assert choices_of_columns(["x", "y", float("nan")], "A").texts == ("x", "y")
    with pytest.raises(FieldError, match="choice 2 of 3 is empty"):
        choices_of_columns(["x", "", "z"], "A")
