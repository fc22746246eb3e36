"""Estimates with intervals: hand-worked numbers, scipy, and the cases in which a bootstrap degenerates."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fairwitness.stats.bootstrap import cluster_mean, cluster_ratio, percentile_interval, wilson


def generator(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_mean_weighs_values_not_clusters() -> None:
    estimate = cluster_mean([1.0, 1.0, 1.0, 0.0], ["a", "a", "a", "b"], rng=generator())
    assert estimate.value == 0.75
    assert (estimate.numerator, estimate.denominator, estimate.num_clusters) == (3.0, 4.0, 2)


def test_order_of_values_and_names_does_not_matter() -> None:
    one = cluster_mean([0.1, 0.5, 0.9, 0.4], ["a", "b", "b", "c"], rng=generator())
    other = cluster_mean([0.4, 0.9, 0.1, 0.5], ["c", "b", "a", "b"], rng=generator())
    assert one == other


def test_equals_scipy_bootstrap_when_every_cluster_has_one_value() -> None:
    values = generator(1).normal(size=80)
    ours = cluster_mean(values, list(range(80)), rng=generator(2), num_resamples=20_000)
    theirs = scipy_stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=generator(3))
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.01)


def test_clustering_widens_the_interval_of_repeated_measurements() -> None:
    per_problem = generator(4).normal(size=40)
    values, clusters = np.repeat(per_problem, 10), np.repeat(np.arange(40), 10)
    clustered = cluster_mean(values, clusters, rng=generator())
    independent = cluster_mean(values, np.arange(400), rng=generator())
    assert clustered.high - clustered.low > 2.5 * (independent.high - independent.low)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = generator(5)
    covered = 0
    for _ in range(200):
        centre = rng.normal(size=60)
        values = (centre[:, None] + rng.normal(size=(60, 3))).reshape(-1)
        estimate = cluster_mean(values, np.repeat(np.arange(60), 3), rng=rng, num_resamples=300)
        covered += estimate.low <= 0.0 <= estimate.high
    assert 0.90 <= covered / 200 <= 0.98


def test_ratio_of_sums_and_empty_clusters() -> None:
    estimate = cluster_ratio([2.0, 1.0, 0.0], [4.0, 1.0, 0.0], rng=generator())
    assert estimate.value == pytest.approx(0.6)
    assert estimate.num_clusters == 2
    # Two clusters give three different resamples: both first, both second, one of each.
    assert (estimate.low, estimate.high) == (0.5, 1.0)


def test_nothing_is_undefined_with_a_reason() -> None:
    estimate = cluster_ratio([], [], rng=generator())
    assert estimate.value is None
    assert estimate.low is None
    assert estimate.high is None
    assert estimate.reason == "nothing was measured"


def test_one_cluster_has_a_value_but_no_interval() -> None:
    estimate = cluster_mean([0.2, 0.4], ["a", "a"], rng=generator())
    assert estimate.value == pytest.approx(0.3)
    assert estimate.low is None
    assert estimate.interval is None
    assert estimate.reason == "one problem gives no interval"


@pytest.mark.parametrize(("value", "num_successes"), [(0.0, 0), (1.0, 12)])
def test_rate_of_none_or_all_falls_back_to_wilson(value: float, num_successes: int) -> None:
    estimate = cluster_mean([value] * 36, np.repeat(np.arange(12), 3), rng=generator(), is_rate=True)
    assert estimate.interval == "wilson"
    assert (estimate.low, estimate.high) == wilson(num_successes, 12)
    assert estimate.denominator == 36
    assert estimate.num_clusters == 12


def test_a_mean_that_is_no_rate_never_gets_a_wilson_interval() -> None:
    assert cluster_mean([0.0, 0.0], ["a", "b"], rng=generator()).interval == "bootstrap"


@pytest.mark.parametrize(("num_successes", "num_trials"), [(0, 10), (3, 10), (10, 10), (1, 1)])
def test_wilson_equals_scipy(num_successes: int, num_trials: int) -> None:
    theirs = scipy_stats.binomtest(num_successes, num_trials).proportion_ci(method="wilson")
    assert wilson(num_successes, num_trials) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_same_generator_same_interval_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = generator(8).normal(size=50), np.arange(50)
    whole = cluster_mean(values, clusters, rng=generator())
    monkeypatch.setattr("fairwitness.stats.bootstrap._CHUNK_CELLS", 150)
    chunked = cluster_mean(values, clusters, rng=generator())
    assert (chunked.low, chunked.high) == pytest.approx((whole.low, whole.high), abs=1e-12)


def test_undefined_resamples_are_left_out() -> None:
    def statistic(weights_rc: np.ndarray) -> np.ndarray:
        return np.where(weights_rc[:, 0] > 0, 1.0, np.nan)

    assert percentile_interval(statistic, 2, rng=generator()) == (1.0, 1.0)
    with pytest.raises(ValueError, match="every resample"):
        percentile_interval(lambda weights: np.full(len(weights), np.nan), 2, rng=generator())


@pytest.mark.parametrize(
    ("numerators", "denominators", "is_rate", "message"),
    [
        ([np.nan], [1.0], False, "finite"),
        ([1.0], [-1.0], False, "negative"),
        ([1.0, 2.0], [1.0], False, "equal lists"),
        ([3.0], [2.0], True, r"\[0, 1\]"),
    ],
)
def test_bad_input_is_refused(numerators: list, denominators: list, is_rate: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster_ratio(numerators, denominators, rng=generator(), is_rate=is_rate)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="clusters"):
        cluster_mean([1.0, 2.0], ["a"], rng=generator())
    with pytest.raises(ValueError, match="trials"):
        wilson(2, 1)
