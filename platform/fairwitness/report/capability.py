"""General capability in the report: a row per cell and set of questions, and sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fairwitness.fur.capability.results import CellCapability, cell_capabilities
from fairwitness.fur.methods import method_name
from fairwitness.report.data import Run, find_setting
from fairwitness.report.findings import with_interval
from fairwitness.report.format import percent, plural, rate, signed
from fairwitness.report.tables import estimate_columns


def run_capabilities(run: Run) -> list[CellCapability]:
    """What was measured of general capability on a run, at every rate; empty where nothing was."""
    seed = find_setting(run.config, "seed")
    return cell_capabilities(run.capability, seed=seed if isinstance(seed, int) and seed >= 0 else 0)


def capability_table(cells: Sequence[CellCapability]) -> pd.DataFrame:
    """A row per cell and set of questions: accuracies, change and share of changed answers with intervals, counts."""
    return pd.DataFrame([_row(cell) for cell in cells])


def capability_lines(cells: Sequence[CellCapability]) -> Iterator[str]:
    """A sentence per cell."""
    for cell in cells:
        method = "" if cell.method == "ff2" else f" ({method_name(cell.method, cell.lora_rank)})"
        failed = f"; {plural(cell.num_failed, 'step')} failed" if cell.num_failed else ""
        yield (
            f"{cell.model} on {cell.data_set}{method}, rate {rate(cell.lr)}: accuracy on {cell.capability_set} "
            f"{with_interval(cell.before)} before and {with_interval(cell.after)} after unlearning one step, "
            f"a change of {change_points(cell)} percentage points; {percent(cell.changed.value)}% of answers changed "
            f"({plural(cell.num_cots, 'CoT')}, {plural(cell.num_steps, 'step')}, "
            f"{plural(cell.num_questions, 'question')}{failed})."
        )


def change_points(cell: CellCapability) -> str:
    """The change in percentage points with its interval over CoTs."""
    change = cell.change
    assert change.value is not None
    if change.low is None or change.high is None:
        return signed(100 * change.value, 1)
    return f"{signed(100 * change.value, 1)} ({signed(100 * change.low, 1)} to {signed(100 * change.high, 1)})"


def _row(cell: CellCapability) -> dict[str, Any]:
    names = ("model", "data_set", "method", "lora_rank", "lr", "capability_set", "scope_key", "cell_key")
    row: dict[str, Any] = {name: getattr(cell, name) for name in names}
    row |= {name: getattr(cell, name) for name in ("num_cots", "num_steps", "num_failed", "num_questions")}
    row |= {"num_questions_left_out": sum(cell.left_out.values()), "worst_change": cell.worst_change}
    for name in ("before", "after", "change", "changed"):
        row |= estimate_columns(name, getattr(cell, name))
    return row
