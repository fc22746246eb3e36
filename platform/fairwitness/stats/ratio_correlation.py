"""Correlation of two ratios over cells, with an interval from resampling the problems that the cells are made of.

Cells of one model and data set are measured on the same problems, so that cells are not independent draws; problems
are. Legend of array suffixes: P cells, C clusters (problems), R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairwitness.stats.bootstrap import LEVEL, NUM_RESAMPLES, Floats, percentile_interval
from fairwitness.stats.correlation import MIN_POINTS, Correlation, pearson


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
