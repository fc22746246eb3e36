"""What the trials of a search say about its cells: only a cell that is measured on all problems can be selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from fairwitness.fur.faithfulness import CellFaithfulness, ChosenRate, Infeasible, choose_rate
from fairwitness.records.store import Store

COMPLETE, FAILED = "complete", "failed"
"""Decisions in `trials`; the others are `feasible early` and `infeasible early`."""


def decisions_of(store: Store, run_row: Mapping[str, Any]) -> dict[str, str]:
    """cell_key → why its trial ended, where the run's last maker is a search; empty for a sweep.

    Args:
        store: The run's store.
        run_row: The last row of `runs` of a job that makes a run.

    Raises:
        StoreError: The store cannot be read.
    """
    if run_row["job"] != "lr_search":
        return {}
    rows = store.read("trials", ["cell_key", "decision"], pc.field("run_key") == run_row["key"]).to_pylist()
    return {row["cell_key"]: row["decision"] for row in rows}


def choose_searched(
    cells: Sequence[CellFaithfulness], decisions: Mapping[str, str], *, min_specificity: float
) -> ChosenRate | Infeasible:
    """As `choose_rate`, on equal evidence: among cells that are measured on all problems and did not fail.

    The nearest miss may be a cell whose trial ended early.

    Args:
        cells: Cells that differ only in their rate.
        decisions: See `decisions_of`; a cell that is not in it counts as measured on all problems.
        min_specificity: In percent.
    """
    sound = [cell for cell in cells if decisions.get(cell.cell_key) != FAILED]
    complete = [cell for cell in sound if decisions.get(cell.cell_key, COMPLETE) == COMPLETE]
    choice = choose_rate(complete, min_specificity=min_specificity)
    return choice if isinstance(choice, ChosenRate) else choose_rate(sound, min_specificity=min_specificity)
