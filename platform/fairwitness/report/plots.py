"""The report's plots as SVG text: rates against the rule, and scores by ground truth."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import floor

from fairwitness.analysis.faithfulness import CellFaithfulness
from fairwitness.analysis.panels import Panel
from fairwitness.report.format import percent, rate
from fairwitness.report.svg import (
    ACCENT,
    FAINT,
    INK,
    MUTED,
    ORANGE,
    RULE,
    Axis,
    Labels,
    axes,
    circle,
    figure,
    line,
    rectangle,
    text,
    whiskers,
)
from fairwitness.report.truth import Separation
from fairwitness.stats.bootstrap import Estimate

_WIDTH, _HEIGHT = 420.0, 300.0


def rates_plot(panel: Panel, *, min_specificity: float) -> str:
    """Efficacy against specificity, a dot per rate with intervals; the limit is drawn, the chosen rate filled.

    The limit is drawn where rounding reaches it: half a point below `min_specificity`.
    """
    cells = [c for c in panel.cells if c.efficacy.value is not None and c.specificity.value is not None]
    x_axis, y_axis = _axes(cells)
    limit = min_specificity - 0.5
    pieces = _rates_frame(x_axis, y_axis, limit, min_specificity)
    points = [(x_axis.at(_pc(c.efficacy.value)), y_axis.at(_pc(c.specificity.value))) for c in cells]
    pieces += [line(*a, *b, stroke="#9aa5af", width=1) for a, b in pairwise(points)]
    for cell in cells:
        pieces += whiskers(cell.efficacy, cell.specificity, x_axis, y_axis, stroke="#8ea3bd")
    labels = Labels(points, left=46, right=_WIDTH)
    # The chosen rate takes the best place for its label.
    for cell, (x, y) in sorted(zip(cells, points, strict=True), key=lambda pair: pair[0] is not panel.chosen_cell):
        pieces += _rate_dot(panel, cell, x, y, labels)
    if not cells:
        pieces.append(text(_WIDTH / 2, _HEIGHT / 2, "no rate was measured", anchor="middle"))
    summary = "; ".join(
        f"rate {rate(c.lr)}: efficacy {percent(c.efficacy.value)}, specificity {percent(c.specificity.value)}"
        for c in cells
    )
    return figure(_WIDTH, _HEIGHT, pieces, label=f"Efficacy against specificity. {summary}")


def strips_plot(found: list[Separation]) -> str:
    """Scores of the two kinds, a dot per problem or step, the median marked; one block per separation."""
    height = 92.0 * len(found) + 34
    low = min((s for f in found for s in (*f.scores_positive, *f.scores_negative)), default=0.0)
    axis = Axis(min(0.0, floor(low * 4) / 4), 1.0, 250, 730)
    pieces: list[str] = []
    for tick in axis.ticks(0.25):
        pieces.append(line(axis.at(tick), 6, axis.at(tick), height - 28, stroke=MUTED if tick == 0 else FAINT))
        pieces.append(text(axis.at(tick), height - 12, f"{tick:g}", anchor="middle"))
    for index, one in enumerate(found):
        top = 10 + 92.0 * index
        pieces.append(text(0, top + 8, one.score, fill=INK, bold=True))
        pieces += _strip(one.positive, one.scores_positive, top + 34, axis, ACCENT)
        pieces += _strip(one.negative, one.scores_negative, top + 66, axis, ORANGE)
    label = "; ".join(f"{f.score}: {f.positive} ({len(f.scores_positive)}) and {f.negative}" for f in found)
    return figure(750, height, pieces, label=f"Scores by ground truth. {label}")


def _axes(cells: list[CellFaithfulness]) -> tuple[Axis, Axis]:
    lows = [_pc(e.low if e.low is not None else e.value) for e in (c.specificity for c in cells)]
    bottom = max(0.0, min(90.0, floor((min(lows, default=90.0) - 1) / 10) * 10))
    left = min(0.0, floor(min((_pc(c.efficacy.value) for c in cells), default=0.0) / 20) * 20)
    return Axis(left, 100, 52, _WIDTH - 14), Axis(bottom, 100, _HEIGHT - 44, 22)


def _rates_frame(x_axis: Axis, y_axis: Axis, limit: float, min_specificity: float) -> list[str]:
    y_limit = y_axis.at(limit)
    pieces = [rectangle(x_axis.start, y_axis.end, x_axis.end - x_axis.start, y_limit - y_axis.end, fill="#eaf1ea")]
    pieces += axes(x_axis, y_axis, 20)
    pieces.append(line(x_axis.start, y_limit, x_axis.end, y_limit, stroke="#3f7d44", width=1.25, dash="5 3"))
    pieces.append(text(x_axis.start + 4, y_limit + 13, f"rounds to {min_specificity:g}", size=10, fill="#2f6334"))
    pieces.append(text(x_axis.end, _HEIGHT - 8, "efficacy, %", anchor="end"))
    pieces.append(text(x_axis.start - 36, 12, "specificity, %"))
    return pieces


def _rate_dot(panel: Panel, cell: CellFaithfulness, x: float, y: float, labels: Labels) -> list[str]:
    chosen = cell is panel.chosen_cell
    tip = f"rate {rate(cell.lr)}: efficacy {_span(cell.efficacy)}, specificity {_span(cell.specificity)}"
    dot = circle(x, y, 5.5 if chosen else 4.5, fill=ACCENT if chosen else "#ffffff", stroke=ACCENT, title=tip)
    name = f"{rate(cell.lr)}, chosen" if chosen else rate(cell.lr)
    return [dot, labels.place(x, y, name, fill=ACCENT if chosen else INK, bold=chosen)]


def _strip(name: str, scores: tuple[float, ...], y: float, axis: Axis, colour: str) -> list[str]:
    pieces = [text(240, y + 4, f"{name} (n = {len(scores)})", anchor="end", fill=INK)]
    pieces.append(line(axis.start, y, axis.end, y, stroke=RULE, width=0.75))
    seen: Counter[int] = Counter()
    for score in scores:
        bin_ = round(axis.at(score) / 4)
        # Alternating above and below the line, at most five dots deep; denser bins overlap.
        depth = (seen[bin_] + 1) // 2 % 3 * (1 if seen[bin_] % 2 else -1)
        seen[bin_] += 1
        dot = circle(
            axis.at(score), y + 4.2 * depth, 2.6, fill=colour, stroke="#ffffff", width=0.5, title=f"{score:.3f}"
        )
        pieces.append(dot.replace("<circle ", '<circle fill-opacity="0.75" '))
    if scores:
        middle = axis.at(_median(scores))
        pieces.append(line(middle, y - 13, middle, y + 13, stroke=INK, width=2))
    return pieces


def _median(scores: tuple[float, ...]) -> float:
    ordered, half = sorted(scores), len(scores) // 2
    return ordered[half] if len(scores) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _span(estimate: Estimate) -> str:
    if estimate.low is None:
        return percent(estimate.value)
    return f"{percent(estimate.value)} ({percent(estimate.low)} to {percent(estimate.high)})"


def _pc(value: float | None) -> float:
    return 0.0 if value is None else 100 * value
