"""A baseline beside ff-hard, worked out by hand on ten problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from fairwitness.analysis.baselines import NO_RESULT, BaselineSummary, baseline_problems, summarise

Row = dict[str, Any]


def row(problem: str, flipped: bool | None = None, *, score: float | None = None, **changes: Any) -> Row:
    base = {"baseline": "add_mistake", "baseline_key": "k", "problem_key": problem, "problem_id": problem}
    return {**base, "flipped": flipped, "score": score, "status": "ok", "reason": None, **changes}


def hard(**flags: bool | None) -> pd.DataFrame:
    """ff-hard by problem; None for one that has no measured step."""
    return pd.DataFrame(
        [
            {"problem_key": key, "ff_hard_any": flag, "counted": flag is not None, "reason": flag is None and "no step"}
            for key, flag in flags.items()
        ]
    )


AGREE: dict[str, bool | None] = {**dict.fromkeys("abcdefh", True), "x": False, "y": None}
HARD = hard(a=True, b=True, c=False, d=False, e=True, f=None, x=True, y=True)
ROWS = [
    row("a", False), row("a", True), row("a", False),
    row("b", False), row("b", False),
    row("c", True),
    row("d", False), row("d", None, status="failed", reason="boom"),
    row("e", None, status="skipped", reason="no text"), row("e", None, status="skipped", reason="no text"),
    row("f", True),
    row("h", True),
    row("x", True),
    row("y", True),
]  # fmt: skip


def summary(rows: list[Row], flags: pd.DataFrame = HARD) -> BaselineSummary:
    return summarise(pd.DataFrame(rows), AGREE, flags, rng=np.random.default_rng(0), hard_rng=np.random.default_rng(1))


def test_shares_count_the_same_problems() -> None:
    found = summary(ROWS)
    # a, b, c and d count: changed a and c, ff-hard a and b, the same for a and d.
    assert (found.changed.numerator, found.changed.denominator) == (2, 4)
    assert (found.ff_hard.numerator, found.ff_hard.denominator) == (2, 4)
    assert (found.same.numerator, found.same.denominator) == (2, 4)
    assert found.changed.low is not None
    assert (found.changed_rows.numerator, found.changed_rows.denominator) == (2, 7)
    assert found.correlation.value == pytest.approx(0.0)
    assert found.correlation.num_points == 4
    assert (found.num_ok, found.num_skipped, found.num_failed) == (11, 2, 1)
    assert found.num_problems == 9
    assert found.excluded == {
        f"{NO_RESULT} (no text)": 1,
        "ff-hard: no step": 1,
        "no unlearning task": 1,
        "direct and CoT answers differ": 1,
        "the base model's answers are missing": 1,
    }
    for estimate in (found.score, found.score_undefined):
        assert (estimate.value, estimate.reason) == (None, "not a score")


def test_problems_with_their_reasons() -> None:
    problems = baseline_problems(pd.DataFrame(ROWS), AGREE, HARD).set_index("problem_key")
    changed = problems["changed"].dropna().to_dict()
    assert changed == {"a": True, "b": False, "c": True, "d": False, "f": True, "h": True, "x": True, "y": True}
    assert problems["reason"].isna().to_dict() == {name: name in "abcd" for name in problems.index}


def scores(**values: float | None) -> list[Row]:
    return [
        row(name, score=value, baseline="cc_shap", reason=None if value is not None else "undefined: nothing")
        for name, value in values.items()
    ]


def test_scores_have_a_mean_and_a_share_that_is_undefined() -> None:
    flags = hard(a=True, b=True, c=False, d=False, e=True, f=True)
    found = summary(scores(a=0.9, b=0.5, c=-0.1, d=0.3, e=None, f=0.2), flags)
    assert found.score.value == pytest.approx((0.9 + 0.5 - 0.1 + 0.3 + 0.2) / 5)
    assert (found.score_undefined.numerator, found.score_undefined.denominator) == (1, 6)
    assert (found.ff_hard.numerator, found.ff_hard.denominator) == (4, 6)
    expected = pearsonr([1, 1, 0, 0, 1], [0.9, 0.5, -0.1, 0.3, 0.2]).statistic
    assert found.correlation.value == pytest.approx(expected)
    assert found.changed.reason == found.same.reason == "not a change of the answer"


def test_scores_that_are_all_undefined() -> None:
    found = summary(scores(a=None, b=None, c=None))
    assert found.score.value is None
    assert found.score_undefined.value == 1.0
    assert found.correlation.value is None
    assert found.correlation.reason


def test_nothing_to_count() -> None:
    found = summary(ROWS[:2], hard(z=True))
    assert found.changed.value is None
    assert found.changed.reason == "nothing was measured"
    assert found.excluded == {"no unlearning task": 1}
    with pytest.raises(ValueError, match="rows of one baseline"):
        summary([row("a", True), row("a", True, baseline_key="other")])
