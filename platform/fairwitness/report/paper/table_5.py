"""Table 5: accuracy without and with a CoT, before any unlearning."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.report.format import decimal
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, value_cell
from fairwitness.report.paper.matrix import NO_PROBLEM, common_notes, empty, import_notes, matrix
from fairwitness.report.paper.published import published
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_5", "Table 5. Accuracy without and with a chain of thought"
MEASURES = ("direct_accuracy", "cot_accuracy")


def table_5(data: PaperData) -> Exhibit:
    """A line per model, accuracy of the direct answer and of the answer after the CoT per data set."""
    entries = data.bases
    if not entries:
        return empty(NAME, TITLE, NO_PROBLEM)

    def cells(entry: Entry) -> Sequence[Cell]:
        return [
            value_cell(getattr(entry.health, name), form=decimal, published=_printed(entry, name)) for name in MEASURES
        ]

    grid = matrix(data, ("no CoT", "CoT"), cells, entries=entries, labels=lambda entry: entry.base_label)
    frame = pd.DataFrame([_row(entry) for entry in entries])
    notes = (
        "Share of right answers, of all problems whose right answer is known.",
        *import_notes(entries),
        *common_notes((), grid),
    )
    return Exhibit(NAME, TITLE, frame, grid, notes=notes)


def _printed(entry: Entry, name: str) -> str | None:
    return None if entry.is_import else published(NAME, entry.model, entry.data_set, name)


def _row(entry: Entry) -> dict[str, object]:
    row = dict(entry.base_names)
    for name in MEASURES:
        row |= estimate_columns(name, getattr(entry.health, name))
        row[f"{name}_published"] = _printed(entry, name)
    return row
