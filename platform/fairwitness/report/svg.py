"""A few SVG pieces: enough for the report's plots, small in the page, the same bytes each time."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from fairwitness.stats.bootstrap import Estimate

INK = "#1d2329"
MUTED = "#5b6670"
RULE = "#c9d0d6"
FAINT = "#eef1f3"
ACCENT = "#1f4e8c"
ORANGE = "#b45309"


def num(value: float) -> str:
    """A coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = RULE, width: float = 1, dash: str = "") -> str:
    """A straight line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}" stroke="{stroke}" '
        f'stroke-width="{num(width)}"{dashes}/>'
    )


def text(
    x: float, y: float, content: str, *, size: float = 11, anchor: str = "start", fill: str = MUTED, bold: bool = False
) -> str:
    """A line of text, escaped; y is the baseline."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}" text-anchor="{anchor}" fill="{fill}"{weight}>'
        f"{escape(content)}</text>"
    )


def circle(x: float, y: float, radius: float, *, fill: str, stroke: str, width: float = 1.5, title: str = "") -> str:
    """A dot with an optional tooltip."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<circle cx="{num(x)}" cy="{num(y)}" r="{num(radius)}" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="{num(width)}">{tip}</circle>'
    )


def rectangle(x: float, y: float, width: float, height: float, *, fill: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}" fill="{fill}"/>'


def figure(width: float, height: float, pieces: list[str], *, label: str) -> str:
    """An inline SVG that scales with the page; `label` is read out instead of it."""
    return (
        f'<svg viewBox="0 0 {num(width)} {num(height)}" role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="system-ui, sans-serif">{"".join(pieces)}</svg>'
    )


def standalone(svg: str) -> str:
    """The same figure as a file of its own, on white."""
    head, rest = svg.split(">", 1)
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg">{background}{rest}\n'


@dataclass(frozen=True)
class Axis:
    """A linear map from data to pixels."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Pixel of a value, kept within the axis."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, interval: float) -> list[float]:
        """Multiples of the interval within the axis."""
        first, last = -int(-self.low // interval), int(self.high // interval)
        return [interval * k for k in range(first, last + 1)]

    @property
    def interval(self) -> float:
        """The distance between ticks that suits a span in percent."""
        span = self.high - self.low
        return 2 if span <= 10 else 5 if span <= 30 else 10 if span <= 60 else 20


def axes(x_axis: Axis, y_axis: Axis, x_interval: float) -> list[str]:
    """Ticks of both axes with their numbers, lines across at those of y, and the line of x."""
    pieces = []
    for tick in x_axis.ticks(x_interval):
        pieces.append(text(x_axis.at(tick), y_axis.start + 17, f"{tick:g}", anchor="middle"))
        pieces.append(line(x_axis.at(tick), y_axis.start, x_axis.at(tick), y_axis.start + 4))
    for tick in y_axis.ticks(y_axis.interval):
        pieces.append(text(x_axis.start - 8, y_axis.at(tick) + 4, f"{tick:g}", anchor="end"))
        pieces.append(line(x_axis.start, y_axis.at(tick), x_axis.end, y_axis.at(tick), stroke="#e3e8ec", width=0.75))
    return [*pieces, line(x_axis.start, y_axis.start, x_axis.end, y_axis.start, stroke="#8b959e")]


def whiskers(x: Estimate, y: Estimate, x_axis: Axis, y_axis: Axis, *, stroke: str) -> list[str]:
    """The intervals of two shares as lines through their point; axes are in percent."""
    x_at, y_at = x_axis.at(100 * (x.value or 0.0)), y_axis.at(100 * (y.value or 0.0))
    pieces = []
    if x.low is not None and x.high is not None:
        pieces.append(line(x_axis.at(100 * x.low), y_at, x_axis.at(100 * x.high), y_at, stroke=stroke))
    if y.low is not None and y.high is not None:
        pieces.append(line(x_at, y_axis.at(100 * y.low), x_at, y_axis.at(100 * y.high), stroke=stroke))
    return pieces


class Labels:
    """Places labels beside points so that they cover neither points nor one another."""

    def __init__(self, points: list[tuple[float, float]], *, left: float, right: float) -> None:
        """Keeps clear of `points` and between `left` and `right`."""
        self._boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
        self._left, self._right = left, right

    def place(self, x: float, y: float, content: str, *, size: float = 11, fill: str = INK, bold: bool = False) -> str:
        """The label of the point at (x, y), in the first free place around it."""
        width = len(content) * size * 0.6
        places = [
            *((9, 4, "start"), (-9, 4, "end"), (0, -10, "middle"), (0, 19, "middle"), (9, -8, "start")),
            *((9, 17, "start"), (-9, 17, "end"), (-9, -8, "end"), (-9, 31, "end"), (-9, 45, "end")),
        ]
        options = [(x + dx, y + dy, anchor) for dx, dy, anchor in places]
        boxes = [self._box(option, width, size) for option in options]
        chosen = next((i for i, box in enumerate(boxes) if self._is_free(box)), 1)
        self._boxes.append(boxes[chosen])
        lx, ly, anchor = options[chosen]
        label = text(lx, ly, content, size=size, anchor=anchor, fill=fill, bold=bold)
        # A white rim keeps the label readable where it crosses a line.
        return label.replace("<text ", '<text paint-order="stroke" stroke="#ffffff" stroke-width="3" ')

    def _box(self, option: tuple[float, float, str], width: float, size: float) -> tuple[float, float, float, float]:
        x, y, anchor = option
        start = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        return start, y - size, start + width, y + 2

    def _is_free(self, box: tuple[float, float, float, float]) -> bool:
        if box[0] < self._left or box[2] > self._right:
            return False
        return all(box[2] < b[0] or b[2] < box[0] or box[3] < b[1] or b[3] < box[1] for b in self._boxes)
