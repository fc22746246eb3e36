"""Correlation of two ratios over cells, with an interval from resampling the problems that the cells are made of.

Cells of one model and data set are measured on the same problems, so that cells are not independent draws; problems
are. Legend of array suffixes: P cells, C clusters (problems), R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import atanh, isclose, sqrt, tanh
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from scipy.stats import t as student_t

from fairwitness.stats.bootstrap import (
    LEVEL,
    NUM_RESAMPLES,
    Floats,
    cluster_codes,
    normal_quantile,
    percentile_interval,
)

CorrelationKind = Literal["pearson", "spearman"]

MIN_POINTS = 3
"""With two points every correlation is 1 or -1."""


@dataclass(frozen=True)
class Correlation:
    """A correlation coefficient with its interval.

    Attributes:
        kind: `pearson` or `spearman`.
        value: The coefficient, -1 to 1, or None when it is undefined.
        low: Lower end of the interval, or None when there is none.
        high: Upper end of the interval, or None when there is none.
        p_value: Probability of a coefficient at least as far from 0 if the points were independent and unrelated
            (two-sided, Student's t with n - 2 degrees of freedom), or None.
        num_points: Points that it is computed from.
        num_clusters: Clusters (problems) that they belong to.
        interval: `fisher` (every point its own cluster), `bootstrap` (clusters resampled), or None.
        reason: Why the value or the interval is missing, otherwise None.
    """

    kind: CorrelationKind
    value: float | None
    low: float | None
    high: float | None
    p_value: float | None
    num_points: int
    num_clusters: int
    interval: Literal["fisher", "bootstrap"] | None
    reason: str | None


def pearson(
    x_N: ArrayLike,
    y_N: ArrayLike,
    clusters_N: Sequence[Any] | NDArray[Any] | None = None,
    *,
    rng: np.random.Generator,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Correlation:
    """Pearson's correlation of pairs.

    Where each cluster has one point the interval is Fisher's z with standard error 1/√(n - 3). Otherwise clusters are
    resampled (percentile interval; resamples in which a list is constant are left out). The p value treats points as
    independent, also where they are clustered; then trust the interval.

    Args:
        x_N: Finite numbers.
        y_N: As many finite numbers.
        clusters_N: The cluster (problem) of each point; None when every point is its own.
        rng: Source of the resamples; not touched for Fisher's interval.
        num_resamples: Number of resamples.
        level: Coverage of the interval, in (0, 1).

    Returns:
        Undefined, with a reason, for fewer than three points or a constant list.

    Raises:
        ValueError: A number is not finite or the lengths differ.
    """
    return _correlate("pearson", x_N, y_N, clusters_N, rng, num_resamples, level)


def spearman(
    x_N: ArrayLike,
    y_N: ArrayLike,
    clusters_N: Sequence[Any] | NDArray[Any] | None = None,
    *,
    rng: np.random.Generator,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Correlation:
    """Spearman's rank correlation of pairs, ties at their mean rank; as `pearson` otherwise.

    Fisher's z has the standard error √((1 + ρ²/2) / (n - 3)) (Bonett & Wright 2000, Psychometrika 65:23). In a
    resample the points are ranked anew.

    Raises:
        ValueError: A number is not finite or the lengths differ.
    """
    return _correlate("spearman", x_N, y_N, clusters_N, rng, num_resamples, level)


def _correlate(
    kind: CorrelationKind,
    x_N: ArrayLike,
    y_N: ArrayLike,
    clusters_N: Sequence[Any] | NDArray[Any] | None,
    rng: np.random.Generator,
    num_resamples: int,
    level: float,
) -> Correlation:
    x, y = _checked(x_N, y_N)
    names = np.arange(len(x)) if clusters_N is None else np.asarray(clusters_N)
    if names.shape != x.shape:
        raise ValueError(f"{x.shape} points but {names.shape} clusters")
    codes = cluster_codes(names)
    num_clusters = int(codes.max()) + 1 if len(x) else 0
    found = Correlation(kind, None, None, None, None, len(x), num_clusters, None, _why_undefined(x, y))
    if found.reason is not None:
        return found
    x, y = (_standardised(x), _standardised(y)) if kind == "pearson" else (rankdata(x), rankdata(y))
    value = float(np.clip(_weighted_pearson(x[None], y[None], np.ones((1, len(x))))[0], -1.0, 1.0))
    if isclose(abs(value), 1.0, abs_tol=1e-12):
        return replace(found, value=value, p_value=0.0, reason="a perfect correlation has no interval")
    found = replace(found, value=value, p_value=_p_value(value, len(x)))
    if num_clusters <= MIN_POINTS:
        return replace(found, reason=f"{num_clusters} problems are too few for an interval")
    if num_clusters == len(x):
        low, high = _fisher(kind, value, len(x), level)
        return replace(found, low=low, high=high, interval="fisher")
    resampled = _resampler(kind, x, y, codes)
    low, high = percentile_interval(resampled, num_clusters, rng=rng, num_resamples=num_resamples, level=level)
    return replace(found, low=low, high=high, interval="bootstrap")


def _why_undefined(x_N: Floats, y_N: Floats) -> str | None:
    if len(x_N) < MIN_POINTS:
        return f"{len(x_N)} points; a correlation needs {MIN_POINTS}"
    for name, values in (("first", x_N), ("second", y_N)):
        if np.all(values == values[0]):
            return f"the {name} list is constant"
    return None


def _standardised(values_N: Floats) -> Floats:
    # The correlation is the same at any scale; at this one rounding is known.
    scaled = values_N / np.abs(values_N).max()
    result: Floats = (scaled - scaled.mean()) / scaled.std()
    return result


def _p_value(value: float, num_points: int) -> float:
    freedom = num_points - 2
    t = value * sqrt(freedom / ((1 - value) * (1 + value)))
    return float(2 * student_t.sf(abs(t), freedom))


def _fisher(kind: CorrelationKind, value: float, num_points: int, level: float) -> tuple[float, float]:
    factor = 1.0 if kind == "pearson" else 1 + value**2 / 2
    half = normal_quantile(level) * sqrt(factor / (num_points - 3))
    return tanh(atanh(value) - half), tanh(atanh(value) + half)


def _resampler(
    kind: CorrelationKind, x_N: Floats, y_N: Floats, codes_N: NDArray[np.intp]
) -> Callable[[Floats], Floats]:
    def resampled(weights_RC: Floats) -> Floats:
        weights_RN = weights_RC[:, codes_N]
        if kind == "pearson":
            shape = weights_RN.shape
            return _weighted_pearson(np.broadcast_to(x_N, shape), np.broadcast_to(y_N, shape), weights_RN)
        return _weighted_pearson(_weighted_ranks(x_N, weights_RN), _weighted_ranks(y_N, weights_RN), weights_RN)

    return resampled


def _weighted_pearson(x_RN: Floats, y_RN: Floats, weights_RN: Floats) -> Floats:
    """Pearson's correlation with each point counted as often as its weight says; NaN where a list is constant."""
    total_R = weights_RN.sum(axis=1, keepdims=True)
    x_RN = x_RN - (weights_RN * x_RN).sum(axis=1, keepdims=True) / total_R
    y_RN = y_RN - (weights_RN * y_RN).sum(axis=1, keepdims=True) / total_R
    xx_R, yy_R = (weights_RN * x_RN**2).sum(axis=1), (weights_RN * y_RN**2).sum(axis=1)
    # What the subtraction of the mean leaves of equal values is rounding, not spread.
    spread_R = np.minimum(xx_R, yy_R) > 1e-20 * total_R[:, 0]
    norm_R = np.sqrt(xx_R * yy_R)
    result: Floats = np.divide(
        (weights_RN * x_RN * y_RN).sum(axis=1), norm_R, out=np.full(len(norm_R), np.nan), where=spread_R
    )
    return result


def _weighted_ranks(values_N: Floats, weights_RN: Floats) -> Floats:
    """Mean rank of each point when every point is there as often as its whole-numbered weight says."""
    _, codes_N = np.unique(values_N, return_inverse=True)
    codes_N = codes_N.reshape(-1)
    order = np.argsort(codes_N, kind="stable")
    starts_U = np.flatnonzero(np.diff(codes_N[order], prepend=-1))
    counts_RU = np.add.reduceat(weights_RN[:, order], starts_U, axis=1)
    below_RU = np.cumsum(counts_RU, axis=1) - counts_RU
    ranks: Floats = (below_RU + (counts_RU + 1) / 2)[:, codes_N]
    return ranks


def _checked(x_N: ArrayLike, y_N: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(x_N, dtype=np.float64), np.asarray(y_N, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"points {x.shape} and {y.shape} must be two equal lists")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("numbers must be finite; leave undefined ones out")
    return x, y


@dataclass(frozen=True)
class Ratios:
    """A ratio of sums for every cell, kept by cluster: the cell's value is `top_PC.sum(1) / bottom_PC.sum(1)`.

    Attributes:
        top_PC: Sum of each cell in each cluster.
        bottom_PC: Its weight there, not negative; 0 where the cell has nothing of that cluster.
    """

    top_PC: Floats
    bottom_PC: Floats

    @property
    def values_P(self) -> Floats:
        """The ratios; NaN for a cell without weight."""
        return _ratio(self.top_PC.sum(axis=1), self.bottom_PC.sum(axis=1))

    def resampled_RP(self, weights_RC: Floats) -> Floats:
        """The ratios when each cluster is there as often as its weight says."""
        return _ratio(weights_RC @ self.top_PC.T, weights_RC @ self.bottom_PC.T)


def ratio_pearson(
    x: Ratios, y: Ratios, *, rng: np.random.Generator, num_resamples: int = NUM_RESAMPLES, level: float = LEVEL
) -> Correlation:
    """Pearson's correlation of two ratios over cells; cells in which one is undefined are left out.

    The interval is a percentile interval over resampled clusters, the cells being the same in every resample; a
    resample counts with the cells that are defined in it. Resampling adds noise to every cell, which weakens
    correlations: where few clusters make that visible, the interval is widened to hold the value. The p value treats
    cells as independent; trust the interval.

    Args:
        x: The one ratio.
        y: The other, of the same cells and clusters.
        rng: Source of the resamples.
        num_resamples: Number of resamples.
        level: Coverage of the interval, in (0, 1).

    Returns:
        Undefined, with a reason, for fewer than three cells or a constant ratio; `num_points` are cells,
        `num_clusters` clusters with weight.

    Raises:
        ValueError: The shapes differ, or a sum is not finite.
    """
    shapes = {array.shape for array in (x.top_PC, x.bottom_PC, y.top_PC, y.bottom_PC)}
    if len(shapes) != 1:
        raise ValueError(f"sums of one shape are needed, not {sorted(shapes)}")
    if not all(np.isfinite(array).all() for array in (x.top_PC, x.bottom_PC, y.top_PC, y.bottom_PC)):
        raise ValueError("sums must be finite; leave undefined ones out")
    known_P = ~(np.isnan(x.values_P) | np.isnan(y.values_P))
    used_C = ((x.bottom_PC > 0) | (y.bottom_PC > 0))[known_P].any(axis=0)
    x, y = (Ratios(r.top_PC[known_P][:, used_C], r.bottom_PC[known_P][:, used_C]) for r in (x, y))
    num_clusters = int(used_C.sum())
    found = replace(
        pearson(x.values_P, y.values_P, rng=rng), low=None, high=None, interval=None, num_clusters=num_clusters
    )
    if found.value is None:
        return found
    if num_clusters <= MIN_POINTS:
        return replace(found, reason=f"{num_clusters} problems are too few for an interval")

    def resampled(weights_RC: Floats) -> Floats:
        return _row_pearson(x.resampled_RP(weights_RC), y.resampled_RP(weights_RC))

    low, high = percentile_interval(resampled, num_clusters, rng=rng, num_resamples=num_resamples, level=level)
    low, high = min(low, found.value), max(high, found.value)
    return replace(found, low=low, high=high, interval="bootstrap", reason=None)


def _row_pearson(x_RP: Floats, y_RP: Floats) -> Floats:
    known_RP = ~(np.isnan(x_RP) | np.isnan(y_RP))
    count_R = known_RP.sum(axis=1)
    x_RP, y_RP = (_centred(values, known_RP, count_R) for values in (x_RP, y_RP))
    xx_R, yy_R = (x_RP**2).sum(axis=1), (y_RP**2).sum(axis=1)
    # Ratios are of size 1; what rounding leaves of equal ones is no spread.
    defined_R = (count_R >= MIN_POINTS) & (np.minimum(xx_R, yy_R) > 1e-20)
    result: Floats = np.divide(
        (x_RP * y_RP).sum(axis=1), np.sqrt(xx_R * yy_R), out=np.full(len(xx_R), np.nan), where=defined_R
    )
    return result


def _centred(values_RP: Floats, known_RP: NDArray[np.bool_], count_R: NDArray[np.intp]) -> Floats:
    filled = np.where(known_RP, values_RP, 0.0)
    mean_R = filled.sum(axis=1) / np.maximum(count_R, 1)
    return np.where(known_RP, filled - mean_R[:, None], 0.0)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    result: Floats = np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)
    return result
