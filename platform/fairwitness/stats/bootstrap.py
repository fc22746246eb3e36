"""Unweighted mean of the means of several cells, with an interval that resamples problems.

Legend of array suffixes: N values, C clusters, S cells, R resamples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

NUM_RESAMPLES = 2000
LEVEL = 0.95
_CHUNK_CELLS = 1_000_000

Floats = NDArray[np.float64]
IntervalKind = Literal["bootstrap", "wilson", "newcombe"]


@dataclass(frozen=True)
class Estimate:
    """A mean, rate or area with its interval and what it was computed from.

    Attributes:
        value: The estimate, or None when it is undefined.
        low: Lower end of the interval, or None when there is no interval.
        high: Upper end of the interval, or None when there is no interval.
        numerator: Sum that was divided.
        denominator: What it was divided by; `value == numerator / denominator`.
        num_clusters: Number of problems that contributed.
        reason: Why the value or the interval is missing, otherwise None.
        interval: How the interval was made, or None when there is none.
    """

    value: float | None
    low: float | None
    high: float | None
    numerator: float
    denominator: float
    num_clusters: int
    reason: str | None
    interval: IntervalKind | None = None


def named_rng(seed: int, *names: str) -> np.random.Generator:
    """A generator that depends on a seed and on what it is for, so that intervals are remade the same anywhere."""
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def undefined(reason: str) -> Estimate:
    """An estimate without value, because there is nothing to compute it from."""
    return Estimate(None, None, None, 0.0, 0.0, 0, reason)


def cluster_mean(
    values_N: ArrayLike,
    clusters_N: Sequence[Any] | NDArray[Any],
    *,
    rng: np.random.Generator,
    is_rate: bool = False,
    trials_per_cluster: int = 1,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Mean over all values, with a cluster-bootstrap interval.

    Every value weighs the same, so a cluster with more values weighs more.

    Args:
        values_N: Finite values; leave undefined ones out before.
        clusters_N: The cluster of each value.
        rng: Source of the resamples.
        is_rate: The values lie in [0, 1] and those limits mean something; see `cluster_ratio`.
        trials_per_cluster: See `cluster_ratio`.
        num_resamples: Number of resamples.
        level: Coverage of the interval, in (0, 1).

    Raises:
        ValueError: A value is not finite, or the lengths differ.
    """
    values = np.asarray(values_N, dtype=np.float64)
    if values.shape != np.shape(clusters_N):
        raise ValueError(f"{values.shape} values but {np.shape(clusters_N)} clusters")
    codes = cluster_codes(clusters_N)
    return cluster_ratio(
        np.bincount(codes, weights=values),
        np.bincount(codes).astype(np.float64),
        rng=rng,
        is_rate=is_rate,
        trials_per_cluster=trials_per_cluster,
        num_resamples=num_resamples,
        level=level,
    )


def cluster_ratio(
    numerators_C: ArrayLike,
    denominators_C: ArrayLike,
    *,
    rng: np.random.Generator,
    is_rate: bool = False,
    trials_per_cluster: int = 1,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Ratio of two sums over clusters, with a percentile cluster-bootstrap interval.

    Clusters whose denominator is 0 contribute nothing and are left out, also of the resampling. With one cluster there
    is no interval. When `is_rate` and every cluster sits at 0, or every one at 1, all resamples are equal and the
    bootstrap would claim certainty; the Wilson interval stands in, with `trials_per_cluster` trials for each cluster.

    Args:
        numerators_C: Sum of each cluster, finite.
        denominators_C: Weight of each cluster, not negative.
        rng: Source of the resamples.
        is_rate: The ratio of every cluster lies in [0, 1].
        trials_per_cluster: Yes-or-no trials that a cluster stands for in the Wilson interval. More than one assumes
            that trials within a cluster are independent.
        num_resamples: Number of resamples.
        level: Coverage of the interval, in (0, 1).

    Raises:
        ValueError: Not finite, negative weight, or a rate outside [0, 1].
    """
    top_C, bottom_C = _checked_sums(numerators_C, denominators_C, is_rate=is_rate)
    num_clusters = len(top_C)
    if num_clusters == 0:
        return undefined("nothing was measured")
    top, bottom = float(top_C.sum()), float(bottom_C.sum())
    value = top / bottom
    if is_rate and (not top_C.any() or np.array_equal(top_C, bottom_C)):
        num_trials = num_clusters * trials_per_cluster
        low, high = wilson(num_trials if value > 0 else 0, num_trials, level=level)
        return Estimate(value, low, high, top, bottom, num_clusters, None, "wilson")
    if num_clusters == 1:
        return Estimate(value, None, None, top, bottom, 1, "one problem gives no interval")

    def ratio(weights_RC: Floats) -> Floats:
        resampled: Floats = (weights_RC @ top_C) / (weights_RC @ bottom_C)
        return resampled

    low, high = percentile_interval(ratio, num_clusters, rng=rng, num_resamples=num_resamples, level=level)
    return Estimate(value, low, high, top, bottom, num_clusters, None, "bootstrap")


def wilson(num_successes: float, num_trials: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Wilson score interval of a proportion of independent trials.

    Raises:
        ValueError: There is no trial, or more successes than trials.
    """
    if not 0 <= num_successes <= num_trials or num_trials == 0:
        raise ValueError(f"{num_successes} successes of {num_trials} trials")
    z2 = normal_quantile(level) ** 2
    share = num_successes / num_trials
    centre = (share + z2 / (2 * num_trials)) / (1 + z2 / num_trials)
    half = sqrt(z2 * (share * (1 - share) + z2 / (4 * num_trials)) / num_trials) / (1 + z2 / num_trials)
    low = 0.0 if num_successes == 0 else max(0.0, centre - half)
    high = 1.0 if num_successes == num_trials else min(1.0, centre + half)
    return low, high


def percentile_interval(
    statistic: Callable[[Floats], Floats],
    num_clusters: int,
    *,
    rng: np.random.Generator,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Percentile interval of a statistic over resampled clusters.

    Args:
        statistic: Takes how often each cluster was drawn (R x C) and returns R values; NaN marks a resample in which
            the statistic is undefined, and such resamples are left out.
        num_clusters: C.
        rng: Source of the resamples.
        num_resamples: R in total.
        level: Coverage, in (0, 1).

    Raises:
        ValueError: The statistic is undefined in every resample.
    """
    draws = [statistic(weights) for weights in _weights(num_clusters, num_resamples, rng)]
    values_R = np.concatenate(draws)
    values_R = values_R[~np.isnan(values_R)]
    if not len(values_R):
        raise ValueError("the statistic is undefined in every resample")
    low, high = np.quantile(values_R, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def cluster_codes(clusters_N: Sequence[Any] | NDArray[Any]) -> NDArray[np.intp]:
    """Numbers clusters from 0 in the order of their sorted names."""
    return np.unique(np.asarray(clusters_N), return_inverse=True)[1].reshape(-1)


def normal_quantile(level: float) -> float:
    """The z of a two-sided interval: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1 + level) / 2)


def _weights(num_clusters: int, num_resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    # Chunks bound the memory of R x C; the draws are the same whatever the chunk.
    chunk = max(1, _CHUNK_CELLS // num_clusters)
    shares = np.full(num_clusters, 1 / num_clusters)
    for start in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - start)
        yield rng.multinomial(num_clusters, shares, size=size).astype(np.float64)


def _checked_sums(numerators_C: ArrayLike, denominators_C: ArrayLike, *, is_rate: bool) -> tuple[Floats, Floats]:
    top_C = np.asarray(numerators_C, dtype=np.float64)
    bottom_C = np.asarray(denominators_C, dtype=np.float64)
    if top_C.shape != bottom_C.shape or top_C.ndim != 1:
        raise ValueError(f"numerators {top_C.shape} and denominators {bottom_C.shape} must be two equal lists")
    if not (np.isfinite(top_C).all() and np.isfinite(bottom_C).all()):
        raise ValueError("values must be finite; leave undefined ones out")
    if (bottom_C < 0).any():
        raise ValueError("denominators must not be negative")
    used = bottom_C > 0
    top_C, bottom_C = top_C[used], bottom_C[used]
    if is_rate and ((top_C < 0) | (top_C > bottom_C * (1 + 1e-12))).any():
        raise ValueError("a rate must lie in [0, 1]")
    return top_C, bottom_C


def mean_of_cells(
    values_N: ArrayLike,
    cells_N: Sequence[Any] | NDArray[Any],
    clusters_N: Sequence[Any] | NDArray[Any],
    *,
    rng: np.random.Generator,
    is_rate: bool = False,
) -> Estimate:
    """Mean over cells of the mean within each cell; every cell weighs the same, however many values it has.

    Resamples in which some cell has no value are left out of the interval. Where every value is 0, or every one is 1,
    of rates, Wilson's interval with one trial per cluster stands in.

    Args:
        values_N: Finite values; leave undefined ones out before.
        cells_N: The cell of each value.
        clusters_N: What belongs together, for example the problem of each value.
        rng: Source of the resamples.
        is_rate: The values lie in [0, 1] and those limits mean something.

    Returns:
        `numerator` is the sum of the cells' means, `denominator` the number of cells.

    Raises:
        ValueError: The lengths differ.
    """
    values = np.asarray(values_N, dtype=np.float64)
    if not values.shape == np.shape(cells_N) == np.shape(clusters_N):
        raise ValueError(f"{values.shape} values, {np.shape(cells_N)} cells and {np.shape(clusters_N)} clusters")
    if not values.size:
        return undefined("nothing was measured")
    cells, clusters = cluster_codes(cells_N), cluster_codes(clusters_N)
    shape = (int(clusters.max()) + 1, int(cells.max()) + 1)
    top_CS, bottom_CS = np.zeros(shape), np.zeros(shape)
    np.add.at(top_CS, (clusters, cells), values)
    np.add.at(bottom_CS, (clusters, cells), 1.0)
    means_S = top_CS.sum(axis=0) / bottom_CS.sum(axis=0)
    value, (num_clusters, num_cells) = float(means_S.mean()), shape
    if is_rate and value in (0.0, 1.0):
        low, high = wilson(value * num_clusters, num_clusters)
        return Estimate(value, low, high, float(means_S.sum()), num_cells, num_clusters, None, "wilson")
    if num_clusters == 1:
        return Estimate(value, None, None, float(means_S.sum()), num_cells, 1, "one problem gives no interval")

    def statistic(weights_RC: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            means_RS: Floats = (weights_RC @ top_CS) / (weights_RC @ bottom_CS)
        averaged: Floats = means_RS.mean(axis=1)
        return averaged

    low, high = percentile_interval(statistic, num_clusters, rng=rng)
    return Estimate(value, low, high, float(means_S.sum()), num_cells, num_clusters, None, "bootstrap")
