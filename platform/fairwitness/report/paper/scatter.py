"""Scatter plots of cells as SVG text: colour by line of the tables, shape by data set, whiskers for intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import ceil, floor, sqrt

import numpy as np
import pandas as pd

from fairwitness.analysis.columns import columns_of
from fairwitness.analysis.faithfulness import CellFaithfulness, counted_iterations
from fairwitness.analysis.step_results import agreement
from fairwitness.report.format import decimal, percent, plural, rate
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import interval
from fairwitness.report.svg import INK, MUTED, RULE, Axis, axes, figure, line, num, rectangle, text, whiskers
from fairwitness.stats.bootstrap import Estimate
from fairwitness.stats.correlation import Correlation, Ratios, ratio_pearson

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
        return self.cell is self.entry.panel.chosen_cell


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
    keys = sorted("/".join(point.cell.draw_names) for point in points)
    found = ratio_pearson(efficacy, ff_hard, rng=points[0].entry.run.rng("efficacy and ff-hard", *keys))
    return replace(found, p_value=None) if found.num_points < MIN_CELLS_FOR_P else found


def points_frame(points: Sequence[Point]) -> pd.DataFrame:
    """A row per cell: its names, rate, efficacy, specificity and ff-hard with intervals, whether the rule chose it."""
    rows = []
    for point in points:
        cell = point.cell
        row = point.entry.names | {"lr": cell.lr, "cell_key": cell.cell_key, "chosen": point.is_chosen}
        rows.append(row | columns_of(cell, ("efficacy", "specificity", "ff_hard_any")))
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
    measured = counted_iterations(rows[rows["cell_key"] == cell.cell_key], agreement(panel.cots))
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


COLOURS = ("#1f4e8c", "#b45309", "#0f766e", "#8b3a9c", "#be123c", "#4d7c0f", "#0369a1", "#78716c")
"""Told apart in both themes and by most colour-blind readers; more lines than these repeat them."""
_WIDTH, _HEIGHT = 420.0, 316.0
_SHAPES = ("circle", "square", "diamond", "triangle", "down", "cross")
Read = Callable[[Point], Estimate]


@dataclass(frozen=True)
class Look:
    """How one point is drawn: colour, shape, and the radius of its mark in pixels."""

    colour: str
    shape: str
    radius: float


@dataclass(frozen=True)
class Quantity:
    """What an axis shows: its title, and how it is read from a point (a share, shown in percent)."""

    title: str
    read: Read


EFFICACY = Quantity("efficacy, %", lambda point: point.cell.efficacy)
SPECIFICITY = Quantity("specificity, %", lambda point: point.cell.specificity)
FF_HARD = Quantity("ff-hard, %", lambda point: point.cell.ff_hard_any)


def scatter(
    points: Sequence[Point],
    *,
    x: Quantity,
    y: Quantity,
    look: Callable[[Point], Look],
    label: str,
    limit: float | None = None,
    width: float = _WIDTH,
) -> str:
    """A dot with whiskers per point; the chosen rates are filled.

    Args:
        points: The cells, each with both quantities known.
        x: What runs to the right.
        y: What runs up.
        look: How a point is drawn.
        label: What is read out instead of the drawing.
        limit: Where a line is drawn across, in percent of y, with the side above tinted.
        width: Width in pixels.
    """
    x_axis = _axis([x.read(point) for point in points], 52, width - 14)
    y_axis = _axis([y.read(point) for point in points], _HEIGHT - 44, 24)
    pieces = _frame(x_axis, y_axis, x.title, y.title, limit)
    for point in points:
        pieces += whiskers(x.read(point), y.read(point), x_axis, y_axis, stroke=RULE)
    for point in points:
        place = (x_axis.at(_pc(x.read(point))), y_axis.at(_pc(y.read(point))))
        tip = f"{point.entry.label} on {point.entry.data_set}, rate {rate(point.cell.lr)}: "
        tip += ", ".join(f"{q.title.removesuffix(', %')} {_span(q.read(point))}" for q in (x, y))
        pieces.append(mark(*place, look(point), filled=point.is_chosen, title=tip))
    if not points:
        pieces.append(text(width / 2, _HEIGHT / 2, "nothing was measured", anchor="middle"))
    return figure(width, _HEIGHT, pieces, label=label)


def looks(points: Sequence[Point], *, with_shapes: bool, radius: float = 4.6) -> dict[tuple[str, str], Look]:
    """Colour of each label and, if wanted, shape of each data set: (label, data set) → look."""
    labels = list(dict.fromkeys(point.entry.label for point in points))
    data_sets = list(dict.fromkeys(point.entry.data_set for point in points))
    return {
        (label, name): Look(COLOURS[i % len(COLOURS)], _SHAPES[j % len(_SHAPES)] if with_shapes else _SHAPES[0], radius)
        for i, label in enumerate(labels)
        for j, name in enumerate(data_sets)
    }


def key_of(styles: Mapping[tuple[str, str], Look]) -> dict[str, Look]:
    """What a legend shows of `looks`: each label as a round dot, each data set as a grey shape."""
    labels = {label: replace(style, shape=_SHAPES[0]) for (label, _), style in styles.items()}
    return labels | {name: replace(style, colour=MUTED) for (_, name), style in styles.items()}


def legend(entries: Mapping[str, Look], *, width: float = _WIDTH) -> str:
    """Names beside their marks, in lines."""
    pieces, x, y = [], 4.0, 14.0
    for name, look in entries.items():
        step = 30 + 6.6 * len(name)
        if x > 4 and x + step > width:
            x, y = 4.0, y + 18
        pieces += [mark(x + 6, y - 4, look, filled=True, title=""), text(x + 17, y, name, fill=INK)]
        x += step
    return figure(width, y + 8, pieces, label="Legend: " + ", ".join(entries))


def mark(x: float, y: float, look: Look, *, filled: bool, title: str) -> str:
    """One mark; an open one is white inside."""
    r = look.radius
    paths = {
        "circle": "",
        "square": f"M{num(x - r)} {num(y - r)}h{num(2 * r)}v{num(2 * r)}h{num(-2 * r)}z",
        "diamond": f"M{num(x)} {num(y - 1.3 * r)}L{num(x + 1.3 * r)} {num(y)}L{num(x)} {num(y + 1.3 * r)}"
        f"L{num(x - 1.3 * r)} {num(y)}z",
        "triangle": f"M{num(x)} {num(y - 1.2 * r)}L{num(x + 1.2 * r)} {num(y + r)}H{num(x - 1.2 * r)}z",
        "down": f"M{num(x)} {num(y + 1.2 * r)}L{num(x + 1.2 * r)} {num(y - r)}H{num(x - 1.2 * r)}z",
        "cross": f"M{num(x - r)} {num(y - r)}L{num(x + r)} {num(y + r)}M{num(x + r)} {num(y - r)}"
        f"L{num(x - r)} {num(y + r)}",
    }
    fill = look.colour if filled else "#ffffff"
    style = f'fill="{fill}" stroke="{look.colour}" stroke-width="1.6"'
    tip = f"<title>{escape(title)}</title>" if title else ""
    if look.shape == "circle":
        return f'<circle cx="{num(x)}" cy="{num(y)}" r="{num(r)}" {style}>{tip}</circle>'
    return f'<path d="{paths[look.shape]}" {style}>{tip}</path>'


def radius_of(share: float | None) -> float:
    """Radius of a mark whose area grows with a share: 3 pixels at 0, 10 at 1."""
    return sqrt(9 + 91 * min(max(share or 0.0, 0.0), 1.0))


def _axis(estimates: Sequence[Estimate], start: float, end: float) -> Axis:
    ends = [_pc(e) for e in estimates]
    ends += [100 * bound for e in estimates for bound in (e.low, e.high) if bound is not None]
    low = floor(min([*ends, 100.0]) / 10) * 10
    high = ceil(max([*ends, 0.0]) / 10) * 10
    low = 0 if 0 <= low <= 40 else low
    high = 100 if high >= 80 else high
    return Axis(low, max(high, low + 10), start, end)


def _frame(x_axis: Axis, y_axis: Axis, x_title: str, y_title: str, limit: float | None) -> list[str]:
    pieces = []
    if limit is not None and limit < y_axis.high:
        top = y_axis.at(limit)
        pieces.append(rectangle(x_axis.start, y_axis.end, x_axis.end - x_axis.start, top - y_axis.end, fill="#eaf1ea"))
        pieces.append(line(x_axis.start, top, x_axis.end, top, stroke="#3f7d44", width=1.25, dash="5 3"))
    pieces += axes(x_axis, y_axis, x_axis.interval)
    pieces.append(text(x_axis.end, y_axis.start + 36, x_title, anchor="end"))
    pieces.append(text(x_axis.start - 36, 13, y_title))
    return pieces


def _span(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} ({interval(estimate)}, n = {estimate.num_clusters})"


def _pc(estimate: Estimate) -> float:
    return 100 * (estimate.value or 0.0)
