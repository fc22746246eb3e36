"""Figures 7, 9 and 10: efficacy against ff-hard over all rates, together, by data set and by model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from fairwitness.report.format import plural
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, Grid, Head, Picture, words
from fairwitness.report.paper.figure_6 import NO_CELL
from fairwitness.report.paper.matrix import empty
from fairwitness.report.paper.points import (
    MIN_CELLS_FOR_P,
    Point,
    correlation_of,
    correlation_row,
    correlation_text,
    left_out_notes,
    p_text,
    points_frame,
    points_of,
)
from fairwitness.report.paper.published import PEARSON
from fairwitness.report.paper.scatter import EFFICACY, FF_HARD, Look, key_of, legend, looks, scatter
from fairwitness.stats.correlation import Correlation

NOTE = (
    "A dot is one model, data set and rate; bars: 95% intervals over problems; filled: the chosen rate. Pearson's r is "
    "over the dots; its interval resamples problems, because dots of one data set share them, while p takes dots as "
    f"independent and is left out below {MIN_CELLS_FOR_P} of them."
)
LEGEND = "Colours: models; shapes: data sets"
_WIDE = 640.0


def figure_7(data: PaperData) -> Exhibit:
    """All cells in one drawing, with Pearson's correlation."""
    name, title = "figure_7", "Figure 7. Efficacy against ff-hard"
    points = points_of(data)
    if not points:
        return empty(name, title, NO_CELL)
    found = correlation_of(points)
    styles = looks(points, with_shapes=True)
    svg = _drawing(points, styles, "Efficacy against ff-hard, a dot per model, data set and rate", _WIDE)
    p = p_text(found)
    caption = correlation_text(found) + (f", {p}" if p else "")
    drawn = Picture(f"{name}_legend", LEGEND, legend(key_of(styles), width=_WIDE))
    pictures = (Picture(name, caption, svg), drawn)
    notes = (NOTE, *left_out_notes(data), f"The paper, over its 93 cells: r = {PEARSON} (p < 0.0001).")
    return Exhibit(name, title, _frame(points, {"all": found}), pictures=pictures, notes=notes)


def figure_9(data: PaperData) -> Exhibit:
    """One drawing per data set."""
    title = "Figure 9. Efficacy against ff-hard, by data set"
    return _parted(data, "figure_9", title, lambda point: point.entry.data_set, "data set")


def figure_10(data: PaperData) -> Exhibit:
    """One drawing per model."""
    title = "Figure 10. Efficacy against ff-hard, by model"
    return _parted(data, "figure_10", title, lambda point: point.entry.label, "model")


def _parted(data: PaperData, name: str, title: str, part: Callable[[Point], str], kind: str) -> Exhibit:
    points = points_of(data)
    if not points:
        return empty(name, title, NO_CELL)
    styles = looks(points, with_shapes=True)
    pictures, found = [], {}
    for number, key in enumerate(dict.fromkeys(map(part, points)), 1):
        own = [point for point in points if part(point) == key]
        found[key] = correlation_of(own)
        svg = _drawing(own, styles, f"Efficacy against ff-hard, {kind} {key}")
        pictures.append(Picture(f"{name}_{number}", f"{key}: {correlation_text(found[key])}", svg))
    pictures.append(Picture(f"{name}_legend", LEGEND, legend(key_of(styles))))
    notes = (NOTE, *left_out_notes(data), *_average(list(found.values())))
    return Exhibit(name, title, _frame(points, found), _table(found, kind), tuple(pictures), notes)


def _drawing(points: Sequence[Point], styles: dict[tuple[str, str], Look], label: str, width: float = 420.0) -> str:
    return scatter(
        points,
        x=EFFICACY,
        y=FF_HARD,
        look=lambda point: styles[point.entry.label, point.entry.data_set],
        label=label,
        width=width,
    )


def _table(found: dict[str, Correlation], kind: str) -> Grid:
    heads = (Head(kind.capitalize(), is_text=True), Head("Pearson"), Head("p"), Head("Cells"), Head("Problems"))
    rows = []
    for key, one in found.items():
        value = correlation_text(one).removeprefix("r = ").rpartition(",")[0]
        shown = words(f"undefined: {one.reason}") if one.value is None else Cell(value)
        rows.append((words(key), shown, Cell(p_text(one)), Cell(str(one.num_points)), Cell(str(one.num_clusters))))
    return Grid((heads,), tuple(rows))


def _average(found: Sequence[Correlation]) -> tuple[str, ...]:
    known = [one.value for one in found if one.value is not None]
    if len(known) < 2:
        return ()
    return (f"Mean of the {plural(len(known), 'correlation')}: {float(np.mean(known)):.3f}.",)


def _frame(points: Sequence[Point], found: dict[str, Correlation]) -> pd.DataFrame:
    cells = points_frame(points)
    cells.insert(0, "row", "cell")
    lines = pd.DataFrame([{"row": "correlation", **correlation_row(name, one)} for name, one in found.items()])
    return pd.concat([cells.astype(object), lines.astype(object)], ignore_index=True)
