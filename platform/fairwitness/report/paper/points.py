"""The points of the scatter plots: a cell (model, data set, rate) each, and their correlation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fairwitness.fur.faithfulness import CellFaithfulness, ChosenRate
from fairwitness.fur.step_results import measured_rows
from fairwitness.report.format import decimal, plural
from fairwitness.report.panels import agreement, rng_for
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.correlation import Correlation
from fairwitness.stats.ratio_correlation import Ratios, ratio_pearson

FULL = "ff2"
MIN_CELLS_FOR_P = 5
"""With fewer cells Student's t says little, and can contradict an interval that resamples many problems."""
TOO_FEW_FOR_P = "too few cells for p"


@dataclass(frozen=True, eq=False)
class Point:
    """One cell.

    Attributes:
        entry: Its entry.
        cell: What the cell shows.
    """

    entry: Entry
    cell: CellFaithfulness

    @property
    def is_chosen(self) -> bool:
        """Whether the rule selects this rate."""
        choice = self.entry.panel.choice
        return isinstance(choice, ChosenRate) and choice.cell is self.cell


def points_of(data: PaperData) -> list[Point]:
    """The cells of full FF2 with a measured efficacy and ff-hard; those of any method where no run has full FF2.

    What several runs measured (same revisions of model and data, method, rank and rate) is there once, from the first.
    """
    found: dict[tuple[object, ...], Point] = {}
    for point in _known(data):
        found.setdefault((*point.entry.identity, point.cell.lr), point)
    return list(found.values())


def left_out_notes(data: PaperData) -> tuple[str, ...]:
    """The note that says which cells `points_of` leaves out; none where it takes all."""
    taken = {id(point.cell) for point in points_of(data)}
    entries = [point.entry for point in _known(data) if id(point.cell) not in taken]
    names = Counter(f"{entry.model} on {entry.data_set} ({entry.run_name})" for entry in entries)
    return left_out_note([f"{name}, {plural(count, 'rate')}" for name, count in names.items()])


def left_out_note(parts: Sequence[str]) -> tuple[str, ...]:
    """The note on what is left out, from the names of its parts."""
    if not parts:
        return ()
    return (f"Left out, because a run named before has the same model, data set, method and rate: {'; '.join(parts)}.",)


def _known(data: PaperData) -> list[Point]:
    cells = [Point(entry, cell) for entry in data.measured for cell in entry.panel.cells]
    full = [point for point in cells if point.cell.method == FULL]
    return [p for p in full or cells if p.cell.efficacy.value is not None and p.cell.ff_hard_any.value is not None]


def correlation_of(points: Sequence[Point]) -> Correlation:
    """Pearson's correlation of efficacy and ff-hard (a change at any iteration), problems resampled for the interval.

    A problem of one data set is one cluster, whichever model and rate it was measured with. Equal cells give an equal
    interval, whatever figure they are in. Below `MIN_CELLS_FOR_P` cells there is no p value.
    """
    sums = [_problem_sums(point) for point in points]
    names = sorted({name for frame in sums for name in frame.index})
    shape = (len(points), len(names))

    def stacked(column: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        rows = [frame[column].reindex(names, fill_value=0.0).to_numpy(dtype=float) for frame in sums]
        return np.asarray(rows, dtype=np.float64).reshape(shape)

    efficacy, ff_hard = (Ratios(stacked(f"{name}_sum"), stacked(f"{name}_count")) for name in ("efficacy", "ff_hard"))
    keys = sorted(point.cell.cell_key for point in points)
    found = ratio_pearson(efficacy, ff_hard, rng=rng_for(points[0].entry.run, "efficacy and ff-hard", *keys))
    return replace(found, p_value=None) if found.num_points < MIN_CELLS_FOR_P else found


def points_frame(points: Sequence[Point]) -> pd.DataFrame:
    """A row per cell: its names, rate, efficacy, specificity and ff-hard with intervals, whether the rule chose it."""
    rows = []
    for point in points:
        cell = point.cell
        row = point.entry.names | {"lr": cell.lr, "cell_key": cell.cell_key, "chosen": point.is_chosen}
        for name in ("efficacy", "specificity", "ff_hard_any"):
            row |= estimate_columns(name, getattr(cell, name))
        rows.append(row)
    return pd.DataFrame(rows)


def correlation_row(name: str, found: Correlation) -> dict[str, object]:
    """The columns of one correlation."""
    return {
        "points": name,
        "pearson": found.value,
        "pearson_low": found.low,
        "pearson_high": found.high,
        "p_value": found.p_value,
        "num_cells": found.num_points,
        "num_problems": found.num_clusters,
        "interval": found.interval,
        "reason": found.reason,
    }


def correlation_text(found: Correlation) -> str:
    """A correlation as a reader sees it: `r = 0.89 (95% interval 0.84 to 0.93), 93 cells`."""
    size = f"{found.num_points} cells"
    if found.value is None:
        return f"r undefined: {found.reason} ({size})"
    if found.low is None:
        return f"r = {decimal(found.value, 3)} ({found.reason}), {size}"
    return f"r = {decimal(found.value, 3)} (95% interval {decimal(found.low, 3)} to {decimal(found.high, 3)}), {size}"


def p_text(found: Correlation) -> str:
    """The p value as a reader sees it."""
    if found.value is None:
        return ""
    if found.p_value is None:
        return TOO_FEW_FOR_P
    return "p < 0.0001" if found.p_value < 1e-4 else f"p = {found.p_value:.4f}"


def _problem_sums(point: Point) -> pd.DataFrame:
    """Per problem the sums and counts whose ratios are the cell's efficacy and ff-hard."""
    panel, cell = point.entry.panel, point.cell
    rows = point.entry.run.unlearning
    agree = agreement(panel.cots)
    measured = measured_rows(rows[rows["cell_key"] == cell.cell_key])
    measured = measured[[bool(agree.get(str(key))) for key in measured["problem_key"]]]
    efficacy = measured.groupby("problem_key")["efficacy"].agg(["sum", "count"])
    counted = panel.problems[(panel.problems["cell_key"] == cell.cell_key) & panel.problems["counted"]]
    flipped = counted.set_index("problem_key")["ff_hard_any"].astype(float)
    frame = pd.DataFrame(
        {
            "efficacy_sum": efficacy["sum"],
            "efficacy_count": efficacy["count"].astype(float),
            "ff_hard_sum": flipped,
            "ff_hard_count": pd.Series(1.0, index=flipped.index),
        }
    )
    return frame.fillna(0.0)
