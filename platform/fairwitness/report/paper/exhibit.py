"""The usual table of the paper: a line per model, columns per data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fairwitness.report.format import MINUS, NOTHING, percent
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.stats.bootstrap import Estimate


@dataclass(frozen=True)
class Cell:
    """One cell of a shown table.

    Attributes:
        text: The figure.
        lines: Small lines below it: interval, n, the paper's own figure.
        title: What a pointer that rests on it shows.
        mark: `chosen`, `grey` or nothing.
        is_text: Whether it is words, set to the left.
    """

    text: str = NOTHING
    lines: tuple[str, ...] = ()
    title: str = ""
    mark: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Head:
    """One cell of a table's head, over `span` columns."""

    text: str
    span: int = 1
    is_text: bool = False


@dataclass(frozen=True)
class Grid:
    """A table as shown: lines of heads, then lines of cells."""

    heads: tuple[tuple[Head, ...], ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Picture:
    """One drawing of a figure.

    Attributes:
        name: Name of its file, without suffix.
        caption: What it shows.
        svg: The drawing.
        texts: Texts that belong to it, each with its heading.
    """

    name: str
    caption: str
    svg: str
    texts: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> int:
        """Width of the drawing in pixels."""
        return int(float(self.svg.split('viewBox="0 0 ', 1)[1].split(" ", 1)[0]))


@dataclass(frozen=True)
class Exhibit:
    """A table or figure.

    Attributes:
        name: Name of its file, for example `table_1`.
        title: The paper's number and what it shows.
        frame: The data behind it, unrounded, with numerators, denominators and intervals.
        grid: The table, where there is one.
        pictures: The drawings.
        notes: What a reader has to know, a sentence each.
        missing: Why it is empty, and which job fills it; None when it is not.
    """

    name: str
    title: str
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    grid: Grid | None = None
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str | None = None


def words(text: str, mark: str = "") -> Cell:
    """A cell of words."""
    return Cell(text, is_text=True, mark=mark)


def value_cell(
    estimate: Estimate, *, form: Callable[[Any], str] = percent, published: str | None = None, mark: str = ""
) -> Cell:
    """A figure with its interval, the number of problems behind it, and the paper's own figure where it is known.

    Args:
        estimate: The figure.
        form: How it is written, by default as a percentage.
        published: The paper's figure, as written there.
        mark: See `Cell`.
    """
    own = () if published is None else (f"paper {published}",)
    if estimate.value is None:
        return Cell(NOTHING, own, estimate.reason or "", mark)
    lines = (interval(estimate, form), f"n = {estimate.num_clusters:,}", *own)
    return Cell(form(estimate.value), lines, estimate.reason or "", mark)


def interval(estimate: Estimate, form: Callable[[Any], str] = percent) -> str:
    """The ends of an interval: `40.0–71.4`."""
    if estimate.low is None or estimate.high is None:
        return "no interval"
    low, high = form(estimate.low), form(estimate.high)
    return f"{low} to {high}" if MINUS in low + high else f"{low}–{high}"


NO_PROBLEM = "no problem was asked; fairwitness sweep asks them"
NO_RATE = "no rate was measured; fairwitness sweep measures rates"
NOT_FEASIBLE = (
    "† No rate meets the specificity bound here; the nearest miss is shown as an illustration, its figures are not a "
    "result."
)
PUBLISHED = "“paper”: the figure printed in the paper for a model and data set of the same name."


@dataclass(frozen=True)
class Line:
    """The cells of one model (with whatever tells it from others) on one data set."""

    label: str
    data_set: str
    cells: tuple[Cell, ...]


def matrix(
    data: PaperData,
    measures: Sequence[str],
    cells: Callable[[Entry], Sequence[Cell]],
    *,
    entries: Sequence[Entry],
    labels: Callable[[Entry], str] = lambda entry: entry.label,
) -> Grid:
    """A line per label, and for each data set a column per measure; a pair that was not measured has dashes.

    Args:
        data: All entries, for the order of data sets.
        measures: Names of the measures; one name gives a single column per data set and no second head.
        cells: The cells of one entry, one per measure.
        entries: The entries to show, at most one per label and data set.
        labels: The line that an entry belongs to.
    """
    return lines_matrix(data, measures, [Line(labels(e), e.data_set, tuple(cells(e))) for e in entries])


def lines_matrix(data: PaperData, measures: Sequence[str], lines: Sequence[Line]) -> Grid:
    """The same from cells that are ready, one `Line` per label and data set."""
    named = dict.fromkeys(line.data_set for line in lines)
    data_sets = [name for name in dict.fromkeys([*data.data_sets, *named]) if name in named]
    span = len(measures)
    heads = [(Head("Model", is_text=True), *[Head(name, span) for name in data_sets])]
    if span > 1:
        heads.append((Head(""), *[Head(measure) for _ in data_sets for measure in measures]))
    rows = []
    for label in dict.fromkeys(line.label for line in lines):
        found = {line.data_set: line.cells for line in lines if line.label == label}
        row = [words(label)]
        for name in data_sets:
            row += found.get(name, [Cell() for _ in measures])
        rows.append(tuple(row))
    return Grid(tuple(heads), tuple(rows))


def infeasible_mark(entry: Entry, cell: Cell) -> Cell:
    """The cell with a dagger where its rate is only the nearest miss."""
    if entry.is_chosen or entry.cell is None:
        return cell
    return Cell(f"{cell.text} †", cell.lines, cell.title, "grey")


def common_notes(entries: Sequence[Entry], cells: Grid) -> tuple[str, ...]:
    """What readers of a table at the chosen rates have to know."""
    notes = []
    if any(not entry.is_chosen for entry in entries):
        notes.append(NOT_FEASIBLE)
    if any(line.startswith("paper ") for row in cells.rows for cell in row for line in cell.lines):
        notes.append(PUBLISHED)
    return tuple(notes)


def import_notes(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What readers of a table over all problems have to know of runs that are imports of published files."""
    runs = dict.fromkeys(entry.run_name for entry in entries if entry.is_import)
    if not runs:
        return ()
    return (
        f"Imported from published files: {', '.join(runs)}. These figures are of the problems in the files only, so "
        "that the paper's own, of all problems, do not stand beside them.",
    )


def empty(name: str, title: str, why: str) -> Exhibit:
    """An exhibit that this run has no data for."""
    return Exhibit(name, title, missing=why)
