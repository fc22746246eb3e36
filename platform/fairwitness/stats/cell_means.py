"""Unweighted mean of the means of several cells, with an interval that resamples problems.

Legend of array suffixes: N values, C clusters, S cells, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairwitness.stats.bootstrap import Estimate, Floats, cluster_codes, percentile_interval, undefined, wilson


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
