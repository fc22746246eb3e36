"""Renders the paper report: one page with its styles inside, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fairwitness.report.format import rate
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.points import correlation_of, correlation_text, p_text, points_of
from fairwitness.report.paper.published import PEARSON
from fairwitness.report.templating import asset, environment

MAX_EXAMPLES = 3
"""Examples of a figure that are shown at once; the others open on demand."""


@dataclass(frozen=True)
class Line:
    """One line of the overview: an entry, its rate, and how many problems count."""

    entry: Entry
    rate: str
    num_asked: int
    num_counted: int | None


def render(data: PaperData, exhibits: Sequence[Exhibit]) -> str:
    """The whole page. Equal arguments give equal text.

    Args:
        data: What was measured.
        exhibits: The tables and figures, in order.
    """
    found = None if not (points := points_of(data)) else correlation_of(points)
    return (
        environment()
        .get_template("paper.html.j2")
        .render(
            css=Markup(asset("report.css") + asset("paper.css")),
            runs=list(dict.fromkeys(entry.run_name for entry in data.entries)),
            lines=[_line(entry) for entry in data.entries],
            several_runs=len({entry.run_name for entry in data.entries}) > 1,
            exhibits=exhibits,
            correlation=None if found is None else ", ".join(filter(None, (correlation_text(found), p_text(found)))),
            published_pearson=PEARSON,
            svg=Markup,
            max_examples=MAX_EXAMPLES,
        )
    )


def _line(entry: Entry) -> Line:
    cell = entry.cell
    shown = "–" if cell is None else rate(cell.lr) + ("" if entry.is_chosen else " †")
    counted = None if cell is None else cell.num_problems - sum(cell.excluded.values())
    return Line(entry, shown, len(entry.panel.cots), counted)
