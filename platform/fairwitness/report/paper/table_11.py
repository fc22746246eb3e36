"""Table 11: ff-hard of single steps at the chosen rates."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, value_cell
from fairwitness.report.paper.matrix import NO_RATE, common_notes, empty, infeasible_mark, matrix
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_11", "Table 11. Steps whose unlearning changes the answer"


def table_11(data: PaperData) -> Exhibit:
    """A line per model, the share of steps per data set; problems whose direct and CoT answers agree."""
    entries = data.measured
    if not entries:
        return empty(NAME, TITLE, NO_RATE)

    def shown(entry: Entry) -> str | None:
        return entry.printed(NAME, "step_flip")

    def cells(entry: Entry) -> Sequence[Cell]:
        assert entry.cell is not None
        found = entry.cell.step_flip_any
        cell = value_cell(found, published=shown(entry))
        steps = f"{int(found.denominator):,} steps"
        return [infeasible_mark(entry, Cell(cell.text, (*cell.lines[:2], steps, *cell.lines[2:]), cell.title))]

    grid = matrix(data, ("steps",), cells, entries=entries)
    rows = []
    for entry in entries:
        assert entry.cell is not None
        row = entry.names | {"lr": entry.cell.lr, "feasible": entry.is_chosen}
        row |= estimate_columns("step_flip_any", entry.cell.step_flip_any)
        row |= estimate_columns("step_flip_final", entry.cell.step_flip_final)
        rows.append(row | {"step_flip_published": shown(entry)})
    notes = (
        "Percent of measured steps whose unlearning changes the direct answer at any iteration; n: problems, which the "
        "interval resamples.",
        *common_notes(entries, grid),
    )
    return Exhibit(NAME, TITLE, pd.DataFrame(rows), grid, notes=notes)
