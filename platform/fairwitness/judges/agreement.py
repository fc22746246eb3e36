"""Whether two judges agree beyond chance.

Legend of array suffixes: N items, C clusters, V verdicts, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwitness.stats.bootstrap import Estimate, Floats, cluster_codes, percentile_interval

ONE_VERDICT = "both judges always give the same one verdict, so agreement by chance is certain"


@dataclass(frozen=True)
class Agreement:
    """Agreement of two judges on the items that both judged.

    Attributes:
        num_items: Items with two verdicts.
        observed: Share of items with equal verdicts; None without items.
        expected: Share that chance would give with each judge's own frequencies; None without items.
        kappa: (observed - expected)/(1 - expected), -1 to 1, with its interval.
    """

    num_items: int
    observed: float | None
    expected: float | None
    kappa: Estimate


def cohens_kappa(
    verdicts_a_N: Sequence[str],
    verdicts_b_N: Sequence[str],
    *,
    rng: np.random.Generator,
    clusters_N: Sequence[Any] | None = None,
) -> Agreement:
    """Cohen's kappa with a percentile interval over resampled items, or over clusters of them.

    Args:
        verdicts_a_N: One judge's verdicts.
        verdicts_b_N: The other's on the same items, in the same order.
        rng: Source of the resamples.
        clusters_N: What belongs together, for example the problem of each item; None where items are independent.

    Returns:
        Kappa is undefined without items and where both judges only ever give the same one verdict. Resamples in which
        that happens are left out of the interval.

    Raises:
        ValueError: The lengths differ.

    Source: Cohen 1960, *A coefficient of agreement for nominal scales*.
    """
    num_items = len(verdicts_a_N)
    if len(verdicts_b_N) != num_items or (clusters_N is not None and len(clusters_N) != num_items):
        raise ValueError(f"{num_items} and {len(verdicts_b_N)} verdicts: one of each judge per item is needed")
    if num_items == 0:
        return Agreement(0, None, None, Estimate(None, None, None, 0.0, 0.0, 0, "no item was judged by both"))
    counts_CVV = _counts(verdicts_a_N, verdicts_b_N, range(num_items) if clusters_N is None else clusters_N)
    num_clusters = len(counts_CVV)
    observed_1, expected_1 = _shares(counts_CVV.sum(axis=0, keepdims=True))
    observed, expected = float(observed_1[0]), float(expected_1[0])
    top, bottom = observed - expected, 1 - expected
    if bottom <= 0:
        kappa = Estimate(None, None, None, top, 0.0, num_clusters, ONE_VERDICT)
    elif num_clusters == 1:
        kappa = Estimate(top / bottom, None, None, top, bottom, 1, "one item or problem gives no interval")
    else:
        low, high = percentile_interval(lambda weights: _kappas(weights, counts_CVV), num_clusters, rng=rng)
        kappa = Estimate(top / bottom, low, high, top, bottom, num_clusters, None, "bootstrap")
    return Agreement(num_items, observed, expected, kappa)


def _counts(a_N: Sequence[str], b_N: Sequence[str], clusters_N: Sequence[Any] | range) -> Floats:
    known = {verdict: number for number, verdict in enumerate(sorted({*a_N, *b_N}))}
    codes_N = cluster_codes(np.asarray(clusters_N))
    counts_CVV = np.zeros((int(codes_N.max()) + 1, len(known), len(known)))
    for code, a, b in zip(codes_N.tolist(), a_N, b_N, strict=True):
        counts_CVV[code, known[a], known[b]] += 1
    return counts_CVV


def _shares(counts_RVV: Floats) -> tuple[Floats, Floats]:
    total_R = counts_RVV.sum(axis=(1, 2))
    observed_R = np.trace(counts_RVV, axis1=1, axis2=2) / total_R
    expected_R = (counts_RVV.sum(axis=2) * counts_RVV.sum(axis=1)).sum(axis=1) / total_R**2
    return observed_R, expected_R


def _kappas(weights_RC: Floats, counts_CVV: Floats) -> Floats:
    observed_R, expected_R = _shares(np.tensordot(weights_RC, counts_CVV, axes=1))
    kappa_R: Floats = np.full(len(weights_RC), np.nan)
    defined_R = expected_R < 1
    kappa_R[defined_R] = (observed_R[defined_R] - expected_R[defined_R]) / (1 - expected_R[defined_R])
    return kappa_R
