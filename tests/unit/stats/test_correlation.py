"""Correlations against scipy, against the plain formula on a written-out resample, and where they are undefined."""

from math import atanh, sqrt, tanh

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fairwitness.stats.correlation import _resampler, pearson, spearman


def generator(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


def pairs(seed: int, num: int = 40, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(seed)
    x = rng.normal(size=num)
    return np.round(x, decimals), np.round(0.4 * x + rng.normal(size=num), decimals)


@pytest.mark.parametrize("decimals", [0, 8])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_pearson_and_its_fisher_interval_equal_scipy(decimals: int, scale: float) -> None:
    x, y = pairs(decimals, decimals=decimals)
    ours, theirs = pearson(x * scale, y, rng=generator()), scipy_stats.pearsonr(x, y)
    interval = theirs.confidence_interval(0.95)
    assert ours.value == pytest.approx(theirs.statistic, abs=1e-12)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert (ours.interval, ours.num_points, ours.num_clusters) == ("fisher", 40, 40)


@pytest.mark.parametrize("decimals", [0, 8])
def test_spearman_equals_scipy_with_and_without_ties(decimals: int) -> None:
    x, y = pairs(decimals, decimals=decimals)
    ours, theirs = spearman(x, y, rng=generator()), scipy_stats.spearmanr(x, y)
    assert ours.value == pytest.approx(theirs.statistic, abs=1e-12)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)


def test_spearman_by_hand() -> None:
    # Rank differences 0, 1, 1, 1, 1 of five: 1 - 6·4/(5·24) = 0.8; Bonett and Wright's error √((1 + 0.32)/2).
    found = spearman([10, 20, 30, 40, 50], [1, 3, 2, 5, 4], rng=generator())
    half = 1.959963984540054 * sqrt(1.32 / 2)
    assert found.value == pytest.approx(0.8)
    assert (found.low, found.high) == pytest.approx((tanh(atanh(0.8) - half), tanh(atanh(0.8) + half)))


def test_spearman_interval_covers_about_as_often_as_it_says() -> None:
    rng, rho = generator(11), 0.6
    truth = 6 / np.pi * np.arcsin(rho / 2)
    draws = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=(400, 50))
    found = [spearman(draw[:, 0], draw[:, 1], rng=rng) for draw in draws]
    assert 0.92 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.98


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_a_resample_is_the_correlation_of_the_repeated_points(kind: str) -> None:
    x, y = pairs(3, num=12, decimals=0)
    codes = np.repeat(np.arange(4), 3)
    weights = np.array([[2.0, 0, 1, 1], [1, 1, 1, 1], [0, 3, 0, 1]])
    found = _resampler(kind, x, y, codes)(weights)  # type: ignore[arg-type]
    oracle = {"pearson": scipy_stats.pearsonr, "spearman": scipy_stats.spearmanr}[kind]
    for value, row in zip(found, weights, strict=True):
        index = np.repeat(np.arange(12), row[codes].astype(int))
        assert value == pytest.approx(oracle(x[index], y[index]).statistic, abs=1e-12)


def test_a_resample_without_spread_is_left_out() -> None:
    x, y = np.array([0.1, 0.1, 0.1, 0.3, 0.7, 0.5]), np.array([1.0, 2, 3, 4, 5, 6])
    found = _resampler("pearson", x, y, np.array([0, 0, 0, 1, 1, 1]))(np.array([[2.0, 0], [1, 1]]))
    assert np.isnan(found[0])
    assert np.isfinite(found[1])


@pytest.mark.parametrize("correlate", [pearson, spearman])
def test_clusters_are_resampled(correlate: type[pearson]) -> None:
    rng = generator(8)
    x, y = pairs(2, num=25)
    x8, y8 = np.repeat(x, 8) + 0.05 * rng.normal(size=200), np.repeat(y, 8) + 0.05 * rng.normal(size=200)
    alone = correlate(x8, y8, rng=generator())
    clustered = correlate(x8, y8, np.repeat(np.arange(25), 8), rng=generator())
    assert (alone.interval, clustered.interval) == ("fisher", "bootstrap")
    assert alone.value == clustered.value
    assert clustered.num_clusters == 25
    assert clustered.high - clustered.low > 1.8 * (alone.high - alone.low)


def test_the_interval_does_not_depend_on_the_order() -> None:
    x, y = pairs(6, num=30)
    names = [f"p{number % 10}" for number in range(30)]
    order = generator(1).permutation(30)
    one = pearson(x, y, names, rng=generator())
    other = pearson(x[order], y[order], [names[i] for i in order], rng=generator())
    assert (other.low, other.high, other.value) == pytest.approx((one.low, one.high, one.value), abs=1e-12)


@pytest.mark.parametrize("correlate", [pearson, spearman])
@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([], [], "0 points; a correlation needs 3"),
        ([1.0, 2.0], [2.0, 1.0], "2 points; a correlation needs 3"),
        ([0.1, 0.1, 0.1, 0.1], [1.0, 2.0, 3.0, 4.0], "the first list is constant"),
        ([1.0, 2.0, 3.0, 4.0], [5.0] * 4, "the second list is constant"),
    ],
)
def test_undefined_with_a_reason(correlate: type[pearson], x: list[float], y: list[float], reason: str) -> None:
    found = correlate(x, y, rng=generator())
    assert (found.value, found.low, found.high, found.p_value, found.interval) == (None,) * 5
    assert found.reason == reason


def test_a_value_without_interval() -> None:
    line = pearson([1, 2, 3, 4], [2, 4, 6, 8], rng=generator())
    assert (line.value, line.low, line.reason) == (1.0, None, "a perfect correlation has no interval")
    few = pearson([1, 2, 4, 3], [1, 3, 2, 4], list("aabb"), rng=generator())
    assert few.value == pytest.approx(0.4)
    assert (few.interval, few.reason) == (None, "2 problems are too few for an interval")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="two equal lists"):
        pearson([1, 2], [1, 2, 3], rng=generator())
    with pytest.raises(ValueError, match="finite"):
        pearson([1, np.nan, 2], [1, 2, 3], rng=generator())
    with pytest.raises(ValueError, match="clusters"):
        pearson([1, 2, 3], [1, 2, 4], ["a"], rng=generator())
