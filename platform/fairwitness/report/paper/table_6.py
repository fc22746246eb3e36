"""Table 6: mean number of steps of a CoT."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.report.format import decimal
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, value_cell
from fairwitness.report.paper.matrix import NO_PROBLEM, common_notes, empty, import_notes, matrix
from fairwitness.report.paper.published import published
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_6", "Table 6. Steps of a chain of thought"


def table_6(data: PaperData) -> Exhibit:
    """A line per model, the mean number of steps per data set, over every CoT of the run."""
    entries = data.bases
    if not entries:
        return empty(NAME, TITLE, NO_PROBLEM)

    def shown(entry: Entry) -> str | None:
        return None if entry.is_import else published(NAME, entry.model, entry.data_set, "steps_per_cot")

    def cells(entry: Entry) -> Sequence[Cell]:
        return [value_cell(entry.health.steps_per_cot, form=decimal, published=shown(entry))]

    grid = matrix(data, ("steps",), cells, entries=entries, labels=lambda entry: entry.base_label)
    rows = [
        {
            **entry.base_names,
            **estimate_columns("steps_per_cot", entry.health.steps_per_cot),
            "steps_per_cot_published": shown(entry),
        }
        for entry in entries
    ]
    notes = (
        "Mean number of sentences that a CoT is cut into, over all CoTs.",
        *import_notes(entries),
        *common_notes((), grid),
    )
    return Exhibit(NAME, TITLE, pd.DataFrame(rows), grid, notes=notes)
