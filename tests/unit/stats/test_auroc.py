"""AUROC against scikit-learn and by hand; its interval against a plain loop."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fairwitness.stats.auroc import auroc, auroc_estimate, newcombe


def generator(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_equals_scikit_learn_with_and_without_ties(decimals: int) -> None:
    rng = generator(decimals)
    scores, labels = np.round(rng.normal(size=300), decimals), rng.random(300) < 0.3
    assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_by_hand_with_one_tie() -> None:
    # Pairs: 2>1 right, 2=2 half, 3>1 right, 3>2 right: 3.5 of 4.
    estimate = auroc_estimate([1, 2, 2, 3], [0, 0, 1, 1], list("abcd"), rng=generator())
    assert estimate.value == 0.875
    assert (estimate.numerator, estimate.denominator) == (3.5, 4.0)


def test_a_binary_score_is_the_mean_of_sensitivity_and_specificity() -> None:
    assert auroc([1, 1, 0, 0, 0], [1, 1, 1, 0, 0]) == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize(("labels", "reason"), [([0, 0], "no positive item"), ([1, 1], "no negative item")])
def test_an_empty_class_is_undefined(labels: list[int], reason: str) -> None:
    assert auroc([0.1, 0.2], labels) is None
    estimate = auroc_estimate([0.1, 0.2], labels, ["a", "b"], rng=generator())
    assert estimate.value is None
    assert estimate.reason == reason


def test_interval_equals_a_loop_over_the_same_resamples() -> None:
    rng = generator(1)
    clusters = np.repeat(np.arange(20), 3)
    labels = np.tile([True, False, False], 20)
    scores = np.round(rng.normal(size=60) + labels, 1)
    estimate = auroc_estimate(scores, labels, clusters, rng=generator(9), num_resamples=200)
    values = []
    for weights in generator(9).multinomial(20, np.full(20, 1 / 20), size=200):
        index = np.concatenate([np.flatnonzero(clusters == c).repeat(w) for c, w in enumerate(weights)])
        values.append(roc_auc_score(labels[index], scores[index]))
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=1e-12)
    assert estimate.num_clusters == 20


def test_perfect_separation_does_not_claim_certainty() -> None:
    estimate = auroc_estimate([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1], list("abcdef"), rng=generator())
    assert estimate.value == 1.0
    assert estimate.high == 1.0
    assert estimate.interval == "newcombe"
    assert 0.3 < estimate.low < 0.9


def test_newcombe_narrows_with_size_and_mirrors() -> None:
    small, large = newcombe(1.0, 5, 5), newcombe(1.0, 50, 50)
    assert small[0] < large[0] < 1.0
    assert newcombe(0.0, 5, 5)[1] == pytest.approx(1 - small[0], abs=1e-9)
    low, high = newcombe(0.8, 40, 40)
    assert 0.65 < low < 0.8 < high < 0.9


def test_a_resample_without_a_class_is_left_out() -> None:
    estimate = auroc_estimate([2, 1, 3], [1, 0, 0], list("abc"), rng=generator())
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_one_cluster_has_no_interval() -> None:
    estimate = auroc_estimate([2, 1, 3], [1, 0, 0], ["a", "a", "a"], rng=generator())
    assert estimate.value == 0.5
    assert estimate.low is None


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        auroc([np.nan, 1.0], [0, 1])
    with pytest.raises(ValueError, match="equal lists"):
        auroc([1.0], [0, 1])
    with pytest.raises(ValueError, match="clusters"):
        auroc_estimate([1.0, 2.0], [0, 1], ["a"], rng=generator())
