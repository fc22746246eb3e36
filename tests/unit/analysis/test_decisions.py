"""A cell can be selected only where its trial went through all problems."""

from __future__ import annotations

import pytest

from fairwitness.analysis.faithfulness import CellFaithfulness, ChosenRate, Infeasible, choose_rate
from fairwitness.stats.bootstrap import Estimate, undefined


def rated(lr: float, efficacy: float, specificity: float) -> CellFaithfulness:
    nothing = undefined("not needed")
    estimates = (Estimate(value, None, None, value, 1.0, 1, None) for value in (efficacy, specificity))
    return CellFaithfulness("m", "d", "ff2", None, lr, f"cell-{lr}", *estimates, *[nothing] * 7, 0, 0, 0, 0, {})


CELLS = [rated(1e-5, 0.4, 0.99), rated(3e-5, 0.9, 0.98), rated(1e-4, 0.7, 0.96), rated(3e-4, 1.0, 0.5)]


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        ({}, 3e-5),
        ({"cell-3e-05": "feasible early"}, 1e-4),
        ({"cell-3e-05": "failed"}, 1e-4),
        ({"cell-3e-05": "complete", "cell-0.0001": "feasible early"}, 3e-5),
    ],
)
def test_only_complete_cells_are_selected(decisions: dict[str, str], expected: float) -> None:
    choice = choose_rate(CELLS, decisions, min_specificity=95.0)
    assert isinstance(choice, ChosenRate)
    assert choice.cell.lr == expected


@pytest.mark.parametrize(("decision", "nearest"), [("infeasible early", 3e-4), ("failed", 1e-3)])
def test_nearest_miss_may_have_ended_early_but_not_failed(decision: str, nearest: float) -> None:
    cells = [rated(3e-4, 1.0, 0.5), rated(1e-3, 1.0, 0.2)]
    choice = choose_rate(cells, {"cell-0.0003": decision}, min_specificity=95.0)
    assert isinstance(choice, Infeasible)
    assert choice.nearest is not None
    assert choice.nearest.lr == nearest
