"""Overlap of changed answers, worked by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import jaccard_score

from fairwitness.analysis.overlap import Overlap, flip_overlap
from fairwitness.stats.bootstrap import wilson


def problems(any_: Mapping[str, bool | None], final: Mapping[str, bool | None] | None = None) -> pd.DataFrame:
    """Rows of one cell; a verdict of None is a problem that does not count."""
    final = final or any_
    keys = list(any_)
    frame = pd.DataFrame(
        {
            "problem_key": keys,
            "ff_hard_any": [any_[key] for key in keys],
            "ff_hard_final": [final[key] for key in keys],
            "counted": [any_[key] is not None for key in keys],
        }
    )
    return frame.astype({"ff_hard_any": "boolean", "ff_hard_final": "boolean"})


def compare(first: pd.DataFrame, second: pd.DataFrame, flip_at: str = "any") -> Overlap:
    return flip_overlap(first, second, flip_at=flip_at, rng=np.random.default_rng(0))  # type: ignore[arg-type]


def counts(found: Overlap) -> tuple[int, ...]:
    return (found.num_both, found.num_first_only, found.num_second_only, found.num_neither, found.num_left_out)


FIRST = {"a": True, "b": True, "c": True, "d": False, "e": False, "f": None, "g": True}
SECOND = {"g": None, "e": False, "d": True, "c": False, "b": True, "a": True, "f": None, "h": True}


def test_counts_and_shares_worked_by_hand() -> None:
    """Both: a, b. First only: c. Second only: d. Neither: e. g and h count under one method, f under none."""
    found = compare(problems(FIRST), problems(SECOND))
    assert counts(found) == (2, 1, 1, 1, 2)
    assert found.num_counted == 5
    assert (found.jaccard.value, found.jaccard.numerator, found.jaccard.denominator) == (0.5, 2, 4)
    assert (found.same.value, found.same.numerator, found.same.denominator) == (0.6, 3, 5)
    assert found.jaccard.low is not None
    assert found.jaccard.low <= 0.5 <= (found.jaccard.high or 0.0)


def test_order_of_rows_and_of_methods() -> None:
    one, two = problems(FIRST), problems(SECOND)
    turned, mirrored = compare(one[::-1], two), compare(two, one)
    assert turned == compare(one, two)
    assert counts(mirrored) == (2, 1, 1, 1, 2)
    assert mirrored.jaccard.value == 0.5


def test_jaccard_is_scikit_learns() -> None:
    draw = np.random.default_rng(3)
    one, two = ({f"p{n:02d}": bool(draw.random() < 0.5) for n in range(40)} for _ in range(2))
    found = compare(problems(one), problems(two))
    assert found.jaccard.value == pytest.approx(jaccard_score(list(one.values()), list(two.values())))
    assert found.num_counted == 40


def test_the_final_iteration_has_its_own_flips() -> None:
    final = {**FIRST, "a": False}
    found = compare(problems(FIRST, final), problems(SECOND), "final")
    assert counts(found) == (1, 1, 2, 1, 2)


def test_exactly_the_same_problems_have_wilsons_interval() -> None:
    verdicts = {"a": True, "b": True, "c": False}
    found = compare(problems(verdicts), problems(verdicts))
    assert found.jaccard.value == 1.0
    assert (found.jaccard.low, found.jaccard.high) == wilson(2, 2)
    assert (found.same.low, found.same.high) == wilson(3, 3)


def test_nothing_changed_is_undefined_not_zero() -> None:
    found = compare(problems({"a": False, "b": False}), problems({"a": False, "b": False}))
    assert (found.jaccard.value, found.jaccard.reason) == (None, "neither method changed an answer")
    assert (found.same.value, found.num_neither) == (1.0, 2)


def test_no_problem_in_common() -> None:
    found = compare(problems({"a": True}), problems({"b": True, "a": None}))
    assert found.num_counted == 0
    assert found.num_left_out == 2
    assert found.jaccard.reason == found.same.reason == "no problem counts under both methods"


def test_problems_of_two_cells_are_refused() -> None:
    twice = pd.concat([problems({"a": True}), problems({"a": False})])
    with pytest.raises(ValueError, match="twice; give the problems of one cell"):
        compare(twice, problems({"a": True}))
