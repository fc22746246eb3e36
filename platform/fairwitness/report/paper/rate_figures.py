"""Figures 7, 9 and 10: efficacy against ff-hard over all rates, together, by data set and by model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fairwitness.analysis.columns import columns_of
from fairwitness.analysis.overlap import MethodGroup, MethodPair, method_groups, overlap_table
from fairwitness.analysis.panels import Panel
from fairwitness.report.format import decimal, plural
from fairwitness.report.paper.data import PEARSON, Entry, PaperData
from fairwitness.report.paper.exhibit import (
    NOT_FEASIBLE,
    Cell,
    Exhibit,
    Grid,
    Head,
    Picture,
    empty,
    interval,
    value_cell,
    words,
)
from fairwitness.report.paper.scatter import (
    COLOURS,
    EFFICACY,
    FF_HARD,
    MIN_CELLS_FOR_P,
    SPECIFICITY,
    Look,
    Point,
    correlation_of,
    correlation_row,
    correlation_text,
    key_of,
    left_out_note,
    left_out_notes,
    legend,
    looks,
    p_text,
    points_frame,
    points_of,
    radius_of,
    scatter,
)
from fairwitness.report.svg import INK, Axis, figure, line, rectangle, text
from fairwitness.stats.bootstrap import Estimate
from fairwitness.stats.correlation import Correlation

FIGURE_6, FIGURE_6_TITLE = "figure_6", "Figure 6. Efficacy against specificity of every rate"
NO_CELL = "no rate was measured on a problem whose direct and CoT answers agree; fairwitness sweep measures rates"


def figure_6(data: PaperData) -> Exhibit:
    """A dot per model and rate; its area grows with ff-hard, the chosen rate is filled, the bound is drawn."""
    points = [point for point in points_of(data) if point.cell.specificity.value is not None]
    if not points:
        return empty(FIGURE_6, FIGURE_6_TITLE, NO_CELL)
    styles = looks(points, with_shapes=False)

    def look(point: Point) -> Look:
        return replace(styles[point.entry.label, point.entry.data_set], radius=radius_of(point.cell.ff_hard_any.value))

    pictures = []
    for number, name in enumerate(dict.fromkeys(point.entry.data_set for point in points), 1):
        own = [point for point in points if point.entry.data_set == name]
        # Half a point below the bound, where rounding reaches it.
        limit = min(point.entry.run.min_specificity for point in own) - 0.5
        label = f"Efficacy against specificity on {name}, a dot per model and rate"
        svg = scatter(own, x=EFFICACY, y=SPECIFICITY, look=look, label=label, limit=limit)
        pictures.append(Picture(f"{FIGURE_6}_{number}", f"{name} (n = {len(own)} rates)", svg))
    pictures.append(
        Picture(f"{FIGURE_6}_legend", "Models", legend({label: style for (label, _), style in styles.items()}))
    )
    notes = (
        "Bars: 95% intervals over problems. Area of a dot: ff-hard, which plays no part in the choice. Filled: the "
        "chosen rate. A rate is feasible in the tinted area.",
        *left_out_notes(data),
    )
    return Exhibit(FIGURE_6, FIGURE_6_TITLE, points_frame(points), pictures=tuple(pictures), notes=notes)


FIGURE_5, FIGURE_5_TITLE = "figure_5", "Figure 5. ff-hard of full FF2 and of LoRA"
ONE_METHOD = "the runs have one method; give fairwitness sweep several under methods, or add a run with another method"
_BAR, _PAIR_GAP, _GROUP_GAP, _TALL = 30.0, 10.0, 34.0, 190.0
_HEADS = ("Model", "Data set", "First", "Second", "n", "Both", "First only", "Second only", "Neither")


@dataclass(frozen=True)
class Bar:
    """ff-hard of one method on the CoTs of one model and data set, which `scope` names."""

    scope: str
    label: str
    data_set: str
    method: str
    is_chosen: bool
    value: Estimate


def figure_5(data: PaperData) -> Exhibit:
    """A bar per method at its chosen rate, for each model and data set that was measured with several."""
    groups = list(_groups(data.measured))
    compared = {id(panel) for group in groups for panel in group.panels}
    entries = [entry for entry in data.measured if id(entry.panel) in compared]
    if not entries:
        return empty(FIGURE_5, FIGURE_5_TITLE, ONE_METHOD)
    bars = [_bar(entry, entries) for entry in entries]
    notes = [
        "Percent of problems, a change at any iteration, each method at the rate that the rule selects for it; bars: "
        "95% intervals over problems. The table compares problem by problem: both changed, one of them, none.",
    ]
    if not all(bar.is_chosen for bar in bars):
        notes.append(NOT_FEASIBLE)
    shown = {entry.identity for entry in entries}
    others = [entry for entry in data.measured if id(entry.panel) not in compared and entry.identity in shown]
    notes += left_out_note([f"{e.model} on {e.data_set} ({e.run_name}), {e.panel.method_name}" for e in others])
    picture = Picture(FIGURE_5, "ff-hard by method", drawing(bars))
    return Exhibit(FIGURE_5, FIGURE_5_TITLE, _frame(entries, groups), _grid(groups), (picture,), tuple(notes))


def _groups(entries: Sequence[Entry]) -> Iterator[MethodGroup]:
    """Other methods on the same CoTs, each once, and no group whose every method an earlier run shows."""
    firsts: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        firsts.setdefault((entry.panel.scope_key, entry.panel.method, entry.panel.lora_rank), entry)
    scopes = list(dict.fromkeys(entry.panel.scope_key for entry in entries))
    owners = {id(entry.panel): entry for entry in firsts.values()}

    def order(panel: Panel) -> tuple[object, ...]:
        return panel.model, panel.data_set, scopes.index(panel.scope_key), panel.order

    def rng(slug: str, *names: str) -> np.random.Generator:
        # As the run's own report draws.
        return next(e.run for e in firsts.values() if e.panel.slug == slug).rng(slug, *names)

    seen: set[tuple[object, ...]] = set()
    for group in method_groups(sorted((entry.panel for entry in firsts.values()), key=order), rng):
        identities = {owners[id(panel)].identity for panel in group.panels}
        if not identities <= seen:
            yield group
        seen |= identities


def _bar(entry: Entry, entries: Sequence[Entry]) -> Bar:
    assert entry.cell is not None
    panel = entry.panel
    scopes = {e.panel.scope_key for e in entries if (e.model, e.data_set) == (entry.model, entry.data_set)}
    label = entry.model if len(scopes) == 1 else entry.base_label
    return Bar(panel.scope_key, label, entry.data_set, panel.method_name, entry.is_chosen, entry.cell.ff_hard_any)


def drawing(bars: Sequence[Bar]) -> str:
    """Bars in groups of one model and data set, from 0 to 100 percent, with whiskers and n."""
    methods = list(dict.fromkeys(bar.method for bar in bars))
    scopes = list(dict.fromkeys(bar.scope for bar in bars))
    axis = Axis(0, 100, 34 + _TALL, 34)
    pieces, x = [], 60.0
    for scope in scopes:
        own = [bar for bar in bars if bar.scope == scope]
        key = (own[0].label, own[0].data_set)
        for number, bar in enumerate(own):
            left = x + number * (_BAR + _PAIR_GAP)
            pieces += _drawn(bar, left, axis, COLOURS[methods.index(bar.method) % len(COLOURS)])
        middle = x + (len(own) * (_BAR + _PAIR_GAP) - _PAIR_GAP) / 2
        pieces.append(text(middle, axis.start + 34, key[0], anchor="middle", fill=INK))
        pieces.append(text(middle, axis.start + 49, key[1], anchor="middle"))
        x += max(len(own) * (_BAR + _PAIR_GAP), 6.6 * max(map(len, key))) + _GROUP_GAP
    width = max(x, 60 + sum(34 + 6.8 * len(name) for name in methods))
    back = [text(14, 20, "ff-hard, %")]
    for tick in axis.ticks(20):
        back.append(text(44, axis.at(tick) + 4, f"{tick:g}", anchor="end"))
        back.append(line(50, axis.at(tick), width - 8, axis.at(tick), stroke="#e3e8ec", width=0.75))
    legend, left = [], 60.0
    for number, name in enumerate(methods):
        legend.append(rectangle(left, axis.start + 66, 12, 12, fill=COLOURS[number % len(COLOURS)]))
        legend.append(text(left + 18, axis.start + 76, name, fill=INK))
        left += 34 + 6.8 * len(name)
    label = "; ".join(f"{b.label} on {b.data_set}, {b.method}: {_said(b.value)}" for b in bars)
    return figure(width, axis.start + 90, [*back, *pieces, *legend], label=f"ff-hard by method. {label}")


def _drawn(bar: Bar, left: float, axis: Axis, colour: str) -> list[str]:
    middle, value = left + _BAR / 2, bar.value
    pieces = [text(middle, axis.start + 15, f"n {value.num_clusters}", size=10, anchor="middle")]
    if value.value is None:
        return [*pieces, text(middle, axis.start - 6, "–", anchor="middle")]
    top = axis.at(100 * value.value)
    pieces.append(rectangle(left, top, _BAR, axis.start - top, fill=colour))
    if value.low is not None and value.high is not None:
        low, high = axis.at(100 * value.low), axis.at(100 * value.high)
        pieces += [line(middle, low, middle, high, stroke=INK), line(middle - 4, low, middle + 4, low, stroke=INK)]
        pieces.append(line(middle - 4, high, middle + 4, high, stroke=INK))
    if not bar.is_chosen:
        pieces.append(text(middle + 9, top - 4, "†", anchor="middle", fill=INK))
    return pieces


def _said(value: Estimate) -> str:
    return "undefined" if value.value is None else f"{100 * value.value:.1f} ({interval(value)})"


def _grid(groups: Sequence[MethodGroup]) -> Grid:
    heads = [Head(name, is_text=number < 4) for number, name in enumerate(_HEADS)]
    rows = [_line(pair) for group in groups for pair in group.pairs]
    return Grid(((*heads, Head("Jaccard"), Head("Same verdict, %")),), tuple(rows))


def _line(pair: MethodPair) -> tuple[Cell, ...]:
    names = (pair.first.model, pair.first.data_set, pair.first.method_name, pair.second.method_name)
    found = pair.any
    if found is None:
        return (*map(words, names), *[Cell(title=pair.reason or "")] * 7)
    numbers = (found.num_counted, found.num_both, found.num_first_only, found.num_second_only, found.num_neither)
    shares = (value_cell(found.jaccard, form=decimal), value_cell(found.same))
    return (*map(words, names), *[Cell(str(number)) for number in numbers], *shares)


def _frame(entries: Sequence[Entry], groups: Sequence[MethodGroup]) -> pd.DataFrame:
    rows = []
    for entry in entries:
        assert entry.cell is not None
        row = {"row": "ff_hard", **entry.names, "lr": entry.cell.lr, "feasible": entry.is_chosen}
        rows.append(row | columns_of(entry.cell, ["ff_hard_any"]))
    overlap = overlap_table(groups)
    overlap.insert(0, "row", "overlap")
    return pd.concat([pd.DataFrame(rows).astype(object), overlap.astype(object)], ignore_index=True)


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
    return Exhibit(name, title, _correlations_frame(points, {"all": found}), pictures=pictures, notes=notes)


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
    return Exhibit(name, title, _correlations_frame(points, found), _table(found, kind), tuple(pictures), notes)


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


def _correlations_frame(points: Sequence[Point], found: dict[str, Correlation]) -> pd.DataFrame:
    cells = points_frame(points)
    cells.insert(0, "row", "cell")
    lines = pd.DataFrame([{"row": "correlation", **correlation_row(name, one)} for name, one in found.items()])
    return pd.concat([cells.astype(object), lines.astype(object)], ignore_index=True)
