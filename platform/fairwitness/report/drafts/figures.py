"""Figures 4, 6, 7 and 8 as SVG text; colours follow the page into the dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairwitness.analysis.drafts import Rate
from fairwitness.report.drafts.grids import column_rank, shown_name
from fairwitness.report.format import percent
from fairwitness.report.svg import Axis, circle, figure, line, rectangle, text

INK, MUTED, FAINT = "var(--ink,#1d2329)", "var(--muted,#5b6670)", "var(--grid,#e3e8ec)"
SERIES = ("#1f4e8c", "#b45309", "#2f7d5b", "#8b3a8f", "#5b6670", "#b91c4b")
"""Light colours of the models' lines; the page's variables `--s0` to `--s5` replace them in the dark."""
TYPES, BEHAVIOURS, POSITIONS = ("continue", "backtrack"), ("correction", "following"), ("initial", "middle", "end")
_WIDTH = 760.0


@dataclass(frozen=True)
class Drawing:
    """One figure: a data set and source of drafts."""

    caption: str
    svg: str


def colour(index: int) -> str:
    """Colour of a model's marks."""
    index %= len(SERIES)
    return f"var(--s{index},{SERIES[index]})"


def position_figures(rates: Sequence[Rate]) -> list[Drawing]:
    """Figures 4 and 6: δ_intra by type of step, behaviour and position, a line per model; from `paper_rates`."""
    return _drawings(rates, _positions)


def behaviour_figures(rates: Sequence[Rate]) -> list[Drawing]:
    """Figures 7 and 8: share of corrections and followings by intervention and type; from `behaviour_shares`."""
    return _drawings(rates, _shares)


def _drawings(rates: Sequence[Rate], draw: Callable[[Sequence[Rate], str], str]) -> list[Drawing]:
    """One per data set and source."""
    parts: dict[tuple[str, str], list[Rate]] = {}
    for rate in rates:
        parts.setdefault((rate.group["data_set"], rate.group["source"]), []).append(rate)
    named = [(f"{data_set}, {source} drafts", part) for (data_set, source), part in sorted(parts.items())]
    return [Drawing(name, draw(part, name)) for name, part in named]


def _positions(rates: Sequence[Rate], name: str) -> str:
    models = sorted({rate.group["model"] for rate in rates})
    pieces = _legend(models)
    top = 18 + 20.0 * len(_legend_rows(models))
    size_x, size_y, gap_x, gap_y = 320.0, 170.0, 70.0, 62.0
    for row, behaviour in enumerate(BEHAVIOURS):
        for column, insertion in enumerate(TYPES):
            left, upper = 44 + column * (size_x + gap_x), top + 26 + row * (size_y + gap_y)
            pieces.append(text(left, upper - 10, f"{insertion} step, {behaviour}", fill=INK, bold=True, size=12))
            within = [r for r in rates if (r.group["insertion_type"], r.group["behaviour"]) == (insertion, behaviour)]
            pieces += _panel(within, models, Axis(0, 100, upper + size_y, upper), left, size_x)
    height = top + 26 + 2 * size_y + gap_y + 30
    names = ("model", "insertion_type", "behaviour", "position")
    label = "; ".join(f"{', '.join(r.group[name] for name in names)}: {_said(r)}" for r in rates)
    return figure(_WIDTH, height, pieces, label=f"Faithful within the draft, percent, by position. {name}. {label}")


def _panel(rates: Sequence[Rate], models: Sequence[str], y: Axis, left: float, width: float) -> list[str]:
    pieces = []
    for tick in y.ticks(25):
        pieces.append(line(left, y.at(tick), left + width, y.at(tick), stroke=FAINT, width=0.75 if tick else 1.5))
        pieces.append(text(left - 7, y.at(tick) + 4, f"{tick:g}", anchor="end", fill=MUTED, size=10.5))
    places = {name: left + width * (k + 0.5) / len(POSITIONS) for k, name in enumerate(POSITIONS)}
    for name, x in places.items():
        pieces.append(text(x, y.start + 16, name, anchor="middle", fill=MUTED))
    if not any(rate.estimate.value is not None for rate in rates):
        pieces.append(text(left + width / 2, (y.start + y.end) / 2, "none", anchor="middle", fill=MUTED))
    for index, model in enumerate(models):
        shift = (index - (len(models) - 1) / 2) * min(14.0, 70.0 / len(models))
        own = {rate.group["position"]: rate for rate in rates if rate.group["model"] == model}
        pieces += _series([(places[p] + shift, own[p]) for p in POSITIONS if p in own], y, colour(index))
    return pieces


def _series(points: Sequence[tuple[float, Rate]], y: Axis, stroke: str) -> list[str]:
    lines, dots = [], []
    last: tuple[float, float] | None = None
    for x, rate in points:
        estimate = rate.estimate
        if estimate.value is None:
            last = None
            continue
        at = y.at(100 * estimate.value)
        if last is not None:
            lines.append(line(*last, x, at, stroke=stroke, width=1.25).replace("<line ", '<line opacity="0.45" '))
        if estimate.low is not None and estimate.high is not None:
            lines.append(line(x, y.at(100 * estimate.low), x, y.at(100 * estimate.high), stroke=stroke, width=1.25))
        tip = f"{rate.group['model']}, {rate.group['position']}: {_said(rate)}"
        dots.append(circle(x, at, 4, fill=stroke, stroke="var(--page,#ffffff)", width=1, title=tip))
        last = (x, at)
    return [*lines, *dots]


def _shares(rates: Sequence[Rate], name: str) -> str:
    models = sorted({rate.group["model"] for rate in rates})
    axis = Axis(0, 100, 232, _WIDTH - 130)
    pieces = [
        rectangle(axis.start, 4, 12, 12, fill=colour(0)), text(axis.start + 18, 14, "correction", fill=INK),
        rectangle(axis.start + 110, 4, 12, 12, fill="var(--pale,#c3d2e6)"),
        text(axis.start + 128, 14, "following", fill=INK),
    ]  # fmt: skip
    y = 34.0
    for model in models:
        own = sorted((r for r in rates if r.group["model"] == model), key=_setup)
        pieces.append(text(0, y + 12, model, fill=INK, bold=True, size=12))
        y += 22 if len(model) > 30 else 0
        for rate in own:
            pieces += _bar(rate, axis, y)
            y += 28
        y += 10
    for tick in axis.ticks(25):
        pieces.append(line(axis.at(tick), y - 6, axis.at(tick), y - 2, stroke=MUTED))
        pieces.append(text(axis.at(tick), y + 11, f"{tick:g}%", anchor="middle", fill=MUTED, size=10.5))
    label = "; ".join(
        f"{r.group['model']}, {shown_name(r.group['intervention'])}, {r.group['insertion_type']}: {_said(r)}"
        for r in rates
    )
    return figure(_WIDTH, y + 18, pieces, label=f"Share of continuations that correct the step. {name}. {label}")


def _setup(rate: Rate) -> list[tuple[int, str]]:
    return column_rank(rate.group["intervention"], rate.group["insertion_type"])


def _bar(rate: Rate, axis: Axis, y: float) -> list[str]:
    name = f"{shown_name(rate.group['intervention'])}, {rate.group['insertion_type']}"
    undecided = f", {rate.num_undefined:,} undecided" if rate.num_undefined else ""
    pieces = [
        text(axis.start - 10, y + 13, name, anchor="end", fill=MUTED),
        text(axis.end + 10, y + 13, f"n = {rate.num_known:,}{undecided}", fill=MUTED, size=10.5),
    ]
    estimate = rate.estimate
    if estimate.value is None:
        return [*pieces, text(axis.start, y + 13, "undefined", fill=MUTED)]
    split = axis.at(100 * estimate.value)
    pieces.append(rectangle(axis.start, y, split - axis.start, 18, fill=colour(0)))
    pieces.append(rectangle(split, y, axis.end - split, 18, fill="var(--pale,#c3d2e6)"))
    if estimate.low is not None and estimate.high is not None:
        low, high = axis.at(100 * estimate.low), axis.at(100 * estimate.high)
        pieces.append(line(low, y + 9, high, y + 9, stroke="var(--page,#ffffff)", width=4))
        pieces.append(line(low, y + 9, high, y + 9, stroke=INK, width=1.5))
        pieces += [line(x, y + 5, x, y + 13, stroke=INK, width=1.5) for x in (low, high)]
    tip = f"<title>{percent(estimate.value)}% correct</title>"
    return [f"<g>{tip}{''.join(pieces)}</g>"]


def _legend(models: Sequence[str]) -> list[str]:
    pieces = []
    for row, names in enumerate(_legend_rows(models)):
        x = 44.0
        for name in names:
            pieces.append(circle(x + 5, 10 + 20 * row, 4, fill=colour(models.index(name)), stroke="none"))
            pieces.append(text(x + 15, 14 + 20 * row, name, fill=INK, size=12))
            x += _legend_width(name)
    return pieces


def _legend_rows(models: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = [[]]
    for name in models:
        if rows[-1] and sum(map(_legend_width, rows[-1])) + _legend_width(name) > _WIDTH - 44:
            rows.append([])
        rows[-1].append(name)
    return rows


def _legend_width(name: str) -> float:
    return 40 + 7.0 * len(name)


def _said(rate: Rate) -> str:
    estimate = rate.estimate
    if estimate.value is None:
        return f"undefined, {rate.num_all} measured"
    spread = "" if estimate.low is None else f" ({percent(estimate.low)} to {percent(estimate.high)})"
    return f"{percent(estimate.value)}{spread}, n = {rate.num_known}"
