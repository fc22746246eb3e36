"""Table 8: efficacy, specificity and ff-hard of every learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fairwitness.fur.faithfulness import CellFaithfulness, ChosenRate, Infeasible
from fairwitness.report.format import rate
from fairwitness.report.panels import min_specificity
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, Grid, Head, value_cell, words
from fairwitness.report.paper.matrix import NO_RATE, PUBLISHED, empty
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_8", "Table 8. Selection of the learning rate"
MEASURES = {"Eff": "efficacy", "Spec": "specificity", "FF": "ff_hard_any"}
_PRINTED = {"efficacy": "efficacy", "specificity": "specificity", "ff_hard_any": "ff_hard"}


def table_8(data: PaperData) -> Exhibit:
    """A line per model and rate, three measures per data set, the chosen rate of each marked."""
    entries = data.measured
    if not entries:
        return empty(NAME, TITLE, NO_RATE)
    data_sets = [name for name in data.data_sets if any(entry.data_set == name for entry in entries)]
    heads = (
        (Head("Model", is_text=True), Head("Rate", is_text=True), *[Head(name, len(MEASURES)) for name in data_sets]),
        (Head(""), Head(""), *[Head(measure) for _ in data_sets for measure in MEASURES]),
    )
    grid = Grid(heads, tuple(_lines(entries, data_sets)))
    bounds = sorted({min_specificity(entry.run) for entry in entries})
    notes = [
        "Percent. Marked: the rate of highest efficacy among those whose specificity rounds to "
        f"{' or '.join(f'{bound:g}' for bound in bounds)} or more. FF (ff-hard, a change at any iteration) plays no "
        "part.",
        *[f"{e.label} on {e.data_set}: {c.reason}" for e in entries if isinstance(c := e.panel.choice, Infeasible)],
    ]
    if any(line.startswith("paper ") for row in grid.rows for cell in row for line in cell.lines):
        notes.append(PUBLISHED)
    return Exhibit(NAME, TITLE, _frame(entries), grid, notes=tuple(notes))


def _choice(entry: Entry) -> CellFaithfulness | None:
    return entry.panel.choice.cell if isinstance(entry.panel.choice, ChosenRate) else None


def _lines(entries: Sequence[Entry], data_sets: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for label in dict.fromkeys(entry.label for entry in entries):
        own = {entry.data_set: entry for entry in entries if entry.label == label}
        rates = sorted({cell.lr for entry in own.values() for cell in entry.panel.cells})
        for number, lr in enumerate(rates):
            line = [words("" if number else label), words(rate(lr))]
            for name in data_sets:
                line += _cells(own.get(name), lr)
            yield tuple(line)


def _cells(entry: Entry | None, lr: float) -> Iterator[Cell]:
    cell = next((c for c in entry.panel.cells if c.lr == lr), None) if entry else None
    for measure in MEASURES.values():
        if entry is None or cell is None:
            yield Cell()
        else:
            mark = "chosen" if cell is _choice(entry) else ""
            yield value_cell(getattr(cell, measure), published=_printed(entry, measure, lr), mark=mark)


def _printed(entry: Entry, measure: str, lr: float) -> str | None:
    return entry.printed(NAME, _PRINTED[measure], lr)


def _frame(entries: Sequence[Entry]) -> pd.DataFrame:
    rows = []
    for entry in entries:
        for cell in entry.panel.cells:
            row = entry.names | {"lr": cell.lr, "chosen": cell is _choice(entry), "cell_key": cell.cell_key}
            for measure in MEASURES.values():
                row |= estimate_columns(measure, getattr(cell, measure))
                row[f"{measure}_published"] = _printed(entry, measure, cell.lr)
            rows.append(row | {"num_tasks_ok": cell.num_tasks_ok, "num_problems": cell.num_problems})
    return pd.DataFrame(rows)
