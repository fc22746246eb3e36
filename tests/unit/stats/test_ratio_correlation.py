"""Correlation of two ratios over cells: scipy's value, an interval from explicit resamples, undefined cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import pearsonr

from fairwitness.stats.correlation import Ratios, ratio_pearson

NUM_CELLS, NUM_CLUSTERS = 6, 15


def make(seed: int = 0, *, num_cells: int = NUM_CELLS) -> tuple[Ratios, Ratios]:
    """Cells of growing ratios, some clusters missing from some cells."""
    rng = np.random.default_rng(seed)
    shape = (num_cells, NUM_CLUSTERS)
    level = np.linspace(0.2, 0.8, num_cells)[:, None]
    bottom = rng.integers(0, 4, size=shape).astype(float)
    top = bottom * np.clip(level + 0.2 * rng.normal(size=shape), 0, 1)
    counted = (rng.random(shape) < 0.8).astype(float)
    flips = counted * (rng.random(shape) < level)
    return Ratios(top, bottom), Ratios(flips, counted)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_the_value_is_that_of_scipy() -> None:
    x, y = make()
    found = ratio_pearson(x, y, rng=rng())
    expected = pearsonr(x.top_PC.sum(1) / x.bottom_PC.sum(1), y.top_PC.sum(1) / y.bottom_PC.sum(1))
    assert found.value == pytest.approx(expected.statistic, rel=1e-12)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.num_points, found.num_clusters, found.interval, found.reason) == (6, 15, "bootstrap", None)


def test_the_interval_is_that_of_resamples_made_one_by_one() -> None:
    x, y = make()
    found = ratio_pearson(x, y, rng=rng(), num_resamples=300)
    draws = rng().multinomial(NUM_CLUSTERS, np.full(NUM_CLUSTERS, 1 / NUM_CLUSTERS), size=300)

    def value(ratios: Ratios, drawn: NDArray[Any], cell: int) -> float:
        repeated = np.repeat(np.arange(NUM_CLUSTERS), drawn)
        return float(ratios.top_PC[cell, repeated].sum() / ratios.bottom_PC[cell, repeated].sum())

    values = [
        np.corrcoef(*[[value(ratios, drawn, cell) for cell in range(NUM_CELLS)] for ratios in (x, y)])[0, 1]
        for drawn in draws
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), rel=1e-9)
    assert found.low is not None
    assert found.value is not None
    assert found.low < found.value


def test_a_cell_without_weight_and_a_cluster_of_no_cell_are_left_out() -> None:
    x, y = make()
    expected = ratio_pearson(x, y, rng=rng())
    grown = [
        Ratios(np.pad(r.top_PC, ((0, 1), (0, 2))), np.pad(r.bottom_PC, ((0, 1), (0, 2)))) for r in (x, y)
    ]  # a seventh cell without weight, two clusters that no cell has
    assert ratio_pearson(*grown, rng=rng()) == expected


def test_a_cell_that_is_undefined_in_some_resamples_counts_in_the_others() -> None:
    x, y = make()
    x.bottom_PC[0, 1:] = 0.0
    x.top_PC[0] = np.where(x.bottom_PC[0] > 0, x.top_PC[0], 0.0)
    x.bottom_PC[0, 0] = 2.0
    found = ratio_pearson(x, y, rng=rng(), num_resamples=400)
    assert found.num_points == 6
    assert found.low is not None
    assert -1 <= found.low <= 1


@pytest.mark.parametrize("num_cells", [0, 1, 2])
def test_fewer_than_three_cells_are_undefined(num_cells: int) -> None:
    x, y = (Ratios(r.top_PC[:num_cells], r.bottom_PC[:num_cells]) for r in make())
    found = ratio_pearson(x, y, rng=rng())
    assert (found.value, found.low, found.high, found.p_value) == (None, None, None, None)
    assert found.reason == f"{num_cells} points; a correlation needs 3"


def test_a_constant_ratio_is_undefined() -> None:
    x, y = make()
    found = ratio_pearson(x, Ratios(0 * y.top_PC, y.bottom_PC), rng=rng())
    assert (found.value, found.low) == (None, None)
    assert found.reason == "the second list is constant"


def test_few_clusters_give_a_value_without_interval() -> None:
    x = Ratios(np.array([[0.1, 0.2], [0.4, 0.6], [0.9, 0.6]]), np.ones((3, 2)))
    y = Ratios(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.ones((3, 2)))
    found = ratio_pearson(x, y, rng=rng())
    assert found.value == pytest.approx(np.corrcoef([0.15, 0.5, 0.75], [0.0, 0.5, 0.5])[0, 1])
    assert (found.low, found.high, found.interval) == (None, None, None)
    assert found.reason == "2 problems are too few for an interval"


def test_sums_that_do_not_fit_are_refused() -> None:
    x, y = make()
    with pytest.raises(ValueError, match="one shape"):
        ratio_pearson(x, Ratios(y.top_PC[:, :3], y.bottom_PC[:, :3]), rng=rng())
    with pytest.raises(ValueError, match="finite"):
        ratio_pearson(Ratios(x.top_PC + np.nan, x.bottom_PC), y, rng=rng())


def test_noise_that_weakens_every_resample_does_not_leave_the_value_outside() -> None:
    # Cells in perfect order whose clusters are all different: every resample is further from it.
    top = np.kron(np.linspace(0.1, 0.9, 5)[:, None], np.ones((1, 6)))
    noise = np.random.default_rng(1).normal(scale=0.3, size=top.shape)
    noisy = top + noise - noise.mean(axis=1, keepdims=True)
    weight = np.ones_like(top)
    found = ratio_pearson(Ratios(top, weight), Ratios(noisy, weight), rng=rng())
    assert found.value == pytest.approx(1.0)
    assert found.low is not None
    assert found.low < 0.98
    assert found.high == found.value
