"""Cohen's kappa against scikit-learn, by hand, where it is undefined, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from fairwitness.judges.agreement import ONE_VERDICT, cohens_kappa

VERDICTS = ["same", "different", "unclear"]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(st.lists(st.tuples(st.sampled_from(VERDICTS), st.sampled_from(VERDICTS)), min_size=1, max_size=40))
def test_equals_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    a, b = zip(*pairs, strict=True)
    found = cohens_kappa(a, b, rng=rng())
    if len({*a, *b}) == 1:
        assert found.kappa.value is None
        assert found.kappa.reason == ONE_VERDICT
        return
    assert found.kappa.value == pytest.approx(cohen_kappa_score(list(a), list(b)), abs=1e-12)
    assert found.observed == pytest.approx(np.mean([x == y for x, y in pairs]))


def test_by_hand() -> None:
    # 50 items: 20 both yes, 15 both no, 5 only a, 10 only b. Observed 0.7; chance 0.5·0.6 + 0.5·0.4 = 0.5; kappa 0.4.
    a = ["yes"] * 20 + ["no"] * 15 + ["yes"] * 5 + ["no"] * 10
    b = ["yes"] * 20 + ["no"] * 15 + ["no"] * 5 + ["yes"] * 10
    found = cohens_kappa(a, b, rng=rng())
    assert (found.num_items, found.observed, found.expected) == (50, 0.7, 0.5)
    assert found.kappa.value == pytest.approx(0.4)
    assert found.kappa.value == pytest.approx(found.kappa.numerator / found.kappa.denominator)


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    draw = np.random.default_rng(5)
    a = draw.choice(VERDICTS, 120)
    b = np.where(draw.random(120) < 0.6, a, draw.choice(VERDICTS, 120))
    found = cohens_kappa(a.tolist(), b.tolist(), rng=rng()).kappa
    picks = draw.integers(0, 120, (2000, 120))
    plain = np.quantile([cohen_kappa_score(a[pick], b[pick]) for pick in picks], [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(plain.tolist(), abs=0.02)


def test_clusters_widen_the_interval() -> None:
    draw = np.random.default_rng(6)
    a = np.repeat(draw.choice(VERDICTS, 20), 5)
    b = np.repeat(np.where(draw.random(20) < 0.6, a[::5], draw.choice(VERDICTS, 20)), 5)
    items = cohens_kappa(a.tolist(), b.tolist(), rng=rng()).kappa
    problems = cohens_kappa(a.tolist(), b.tolist(), rng=rng(), clusters_N=[n // 5 for n in range(100)]).kappa
    assert problems.value == items.value
    assert problems.num_clusters == 20
    assert None not in (items.low, items.high, problems.low, problems.high)
    assert problems.high - problems.low > 1.5 * (items.high - items.low)  # type: ignore[operator]


def test_undefined_without_items_and_without_interval_for_one() -> None:
    empty = cohens_kappa([], [], rng=rng())
    assert (empty.num_items, empty.observed, empty.kappa.value) == (0, None, None)
    assert empty.kappa.reason == "no item was judged by both"
    one = cohens_kappa(["same"], ["different"], rng=rng()).kappa
    assert (one.value, one.low) == (0.0, None)


def test_lengths_must_be_equal() -> None:
    with pytest.raises(ValueError, match="one of each judge per item"):
        cohens_kappa(["same"], [], rng=rng())
