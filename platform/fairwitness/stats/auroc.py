"""How well a score separates two classes: area under the ROC curve, with an interval over problems.

Legend of array suffixes: N items, U distinct scores, R resamples, C clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairwitness.stats.bootstrap import (
    LEVEL,
    NUM_RESAMPLES,
    Estimate,
    Floats,
    cluster_codes,
    normal_quantile,
    percentile_interval,
    undefined,
)


def auroc(scores_N: ArrayLike, labels_N: ArrayLike) -> float | None:
    """Probability that a positive item scores above a negative one, ties counted half (Mann-Whitney U / pairs).

    Args:
        scores_N: Finite scores.
        labels_N: True for the positive class.

    Returns:
        A number in [0, 1], or None when one of the classes is empty.

    Raises:
        ValueError: A score is not finite or the lengths differ.
    """
    scores, labels = _checked(scores_N, labels_N)
    if labels.all() or not labels.any():
        return None
    return float(_weighted_auroc(scores, labels, np.ones((1, len(scores))))[0])


def auroc_estimate(
    scores_N: ArrayLike,
    labels_N: ArrayLike,
    clusters_N: Sequence[Any] | NDArray[Any],
    *,
    rng: np.random.Generator,
    num_resamples: int = NUM_RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """AUROC with a percentile cluster-bootstrap interval.

    Resamples in which a class is missing are left out. Where the classes are separated without exception the
    bootstrap would claim certainty; Newcombe's interval stands in, with the numbers of clusters that hold a positive
    and a negative item as sample sizes (cautious where a cluster holds many). The numerator is the number of pairs in
    the right order, the denominator the number of pairs.

    Args:
        scores_N: Finite scores.
        labels_N: True for the positive class.
        clusters_N: The cluster (problem) of each item.
        rng: Source of the resamples.
        num_resamples: Number of resamples.
        level: Coverage of the interval, in (0, 1).

    Raises:
        ValueError: A score is not finite or the lengths differ.
    """
    scores, labels = _checked(scores_N, labels_N)
    if scores.shape != np.shape(clusters_N):
        raise ValueError(f"{scores.shape} scores but {np.shape(clusters_N)} clusters")
    value = auroc(scores, labels)
    if value is None:
        kind = "positive" if not labels.any() else "negative"
        return undefined(f"no {kind} item")
    codes = cluster_codes(clusters_N)
    num_clusters = int(codes.max()) + 1
    pairs = float(labels.sum() * (~labels).sum())
    if value in (0.0, 1.0):
        low, high = newcombe(value, len(set(codes[labels])), len(set(codes[~labels])), level=level)
        return Estimate(value, low, high, value * pairs, pairs, num_clusters, None, "newcombe")
    if num_clusters == 1:
        return Estimate(value, None, None, value * pairs, pairs, 1, "one problem gives no interval")

    def resampled(weights_RC: Floats) -> Floats:
        return _weighted_auroc(scores, labels, weights_RC[:, codes])

    low, high = percentile_interval(resampled, num_clusters, rng=rng, num_resamples=num_resamples, level=level)
    return Estimate(value, low, high, value * pairs, pairs, num_clusters, None, "bootstrap")


def newcombe(value: float, num_positive: int, num_negative: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Score interval of an AUROC, not degenerate at 0 and 1.

    The ends are the areas θ with |value - θ| = z·√V(θ), V the Hanley-McNeil variance under exponential scores with
    the pooled sample size in it (Newcombe 2006, Statistics in Medicine 25:559, method 5).
    """

    def excess(theta: float) -> float:
        pooled = (num_positive + num_negative) / 2 - 1
        inner = 1 + pooled * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance = theta * (1 - theta) * inner / (num_positive * num_negative)
        return abs(value - theta) - normal_quantile(level) * sqrt(max(variance, 0.0))

    return _bisect(excess, outer=0.0, inner=value), _bisect(excess, outer=1.0, inner=value)


def _bisect(excess: Callable[[float], float], *, outer: float, inner: float) -> float:
    for _ in range(60):
        middle = (outer + inner) / 2
        if excess(middle) > 0:
            outer = middle
        else:
            inner = middle
    return inner


def _weighted_auroc(scores_N: Floats, labels_N: NDArray[np.bool_], weights_RN: Floats) -> Floats:
    order = np.argsort(scores_N, kind="stable")
    starts_U = np.flatnonzero(np.diff(scores_N[order], prepend=np.nan) != 0)
    weights_RN = weights_RN[:, order]
    positive_RU = np.add.reduceat(weights_RN * labels_N[order], starts_U, axis=1)
    negative_RU = np.add.reduceat(weights_RN * ~labels_N[order], starts_U, axis=1)
    below_RU = np.cumsum(negative_RU, axis=1) - negative_RU
    won_R = (positive_RU * (below_RU + negative_RU / 2)).sum(axis=1)
    pairs_R = positive_RU.sum(axis=1) * negative_RU.sum(axis=1)
    result: Floats = np.divide(won_R, pairs_R, out=np.full_like(won_R, np.nan), where=pairs_R > 0)
    return result


def _checked(scores_N: ArrayLike, labels_N: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    scores = np.asarray(scores_N, dtype=np.float64)
    labels = np.asarray(labels_N, dtype=bool)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise ValueError(f"scores {scores.shape} and labels {labels.shape} must be two equal lists")
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite; leave undefined ones out")
    return scores, labels
