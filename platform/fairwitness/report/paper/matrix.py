"""The usual table of the paper: a line per model, columns per data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, Grid, Head, words

NO_PROBLEM = "no problem was asked; jobs/fur_sweep.py asks them"
NO_RATE = "no rate was measured; jobs/fur_sweep.py measures rates"
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
