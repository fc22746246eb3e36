"""Table 5: accuracy without and with a CoT, before any unlearning."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fairwitness.report.format import decimal
from fairwitness.report.health import panel_health
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, value_cell
from fairwitness.report.paper.matrix import NO_PROBLEM, common_notes, empty, matrix
from fairwitness.report.paper.published import published
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate

NAME, TITLE = "table_5", "Table 5. Accuracy without and with a chain of thought"
MEASURES = ("direct_accuracy", "cot_accuracy")


def table_5(data: PaperData) -> Exhibit:
    """A line per model, accuracy of the direct answer and of the answer after the CoT per data set."""
    entries = data.bases
    if not entries:
        return empty(NAME, TITLE, NO_PROBLEM)
    found = {id(entry): _accuracies(entry) for entry in entries}

    def cells(entry: Entry) -> Sequence[Cell]:
        return [
            value_cell(
                found[id(entry)][name],
                form=decimal,
                published=published(NAME, entry.model, entry.data_set, name),
            )
            for name in MEASURES
        ]

    grid = matrix(data, ("no CoT", "CoT"), cells, entries=entries, labels=lambda entry: entry.base_label)
    frame = pd.DataFrame([_row(entry, found[id(entry)]) for entry in entries])
    notes = ("Share of right answers, of all problems whose right answer is known.", *common_notes((), grid))
    return Exhibit(NAME, TITLE, frame, grid, notes=notes)


def _accuracies(entry: Entry) -> dict[str, Estimate]:
    gold = {key: problem.gold for key, problem in entry.problems.items() if problem.gold is not None}
    health = panel_health(entry.panel, gold, entry.rng(NAME))
    return {name: getattr(health, name) for name in MEASURES}


def _row(entry: Entry, found: dict[str, Estimate]) -> dict[str, object]:
    row = dict(entry.base_names)
    for name in MEASURES:
        row |= estimate_columns(name, found[name])
        row[f"{name}_published"] = published(NAME, entry.model, entry.data_set, name)
    return row
