"""The mean of cells' means: worked by hand, and equal to the plain mean where both must be."""

import numpy as np
import pytest

from fairwitness.stats.bootstrap import cluster_mean, mean_of_cells

VALUES = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
CELLS = ["a", "a", "a", "b", "b", "b"]
CLUSTERS = ["p", "q", "r", "p", "q", "r"]


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_every_cell_weighs_the_same() -> None:
    found = mean_of_cells([1.0, 0.0, 0.0, 0.0, 1.0], ["a"] * 4 + ["b"], ["p", "q", "r", "s", "p"], rng=rng())
    assert found.value == pytest.approx((0.25 + 1.0) / 2)
    assert (found.numerator, found.denominator, found.num_clusters) == (1.25, 2, 4)


@pytest.mark.parametrize("cells", [["a"] * 6, CELLS])
def test_it_is_the_plain_mean_of_one_cell_and_of_cells_of_one_size(cells: list[str]) -> None:
    plain = cluster_mean(VALUES, CLUSTERS, rng=rng())
    found = mean_of_cells(VALUES, cells, CLUSTERS, rng=rng())
    assert found.value == pytest.approx(plain.value)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))


def test_resamples_without_a_cell_are_left_out_of_the_interval() -> None:
    found = mean_of_cells([1.0, 0.0, 1.0], ["a", "a", "b"], ["p", "q", "p"], rng=rng())
    # Without problem p there is no b; with it alone both cells are 1, with both a is a half.
    assert (found.value, found.low, found.high) == (0.75, 0.75, 1.0)


def test_limits() -> None:
    all_one = mean_of_cells([1.0, 1.0], ["a", "b"], ["p", "q"], rng=rng(), is_rate=True)
    assert (all_one.value, all_one.high, all_one.interval) == (1.0, 1.0, "wilson")
    assert all_one.low is not None
    assert 0 < all_one.low < 1
    one = mean_of_cells([1.0, 0.0], ["a", "b"], ["p", "p"], rng=rng())
    assert (one.value, one.low, one.reason) == (0.5, None, "one problem gives no interval")
    assert mean_of_cells([], [], [], rng=rng()).reason == "nothing was measured"
    with pytest.raises(ValueError, match="clusters"):
        mean_of_cells([1.0], ["a"], ["p", "q"], rng=rng())
