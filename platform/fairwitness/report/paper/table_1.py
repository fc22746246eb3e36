"""Table 1: efficacy, specificity and general capability at the chosen rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

from fairwitness.report.format import percent
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, Grid, Head, value_cell
from fairwitness.report.paper.matrix import NO_RATE, common_notes, empty, infeasible_mark, matrix
from fairwitness.report.paper.published import published
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate, undefined

NAME, TITLE = "table_1", "Table 1. Efficacy, specificity and general capability"
MEASURES = ("Eff", "Spec", "Gen")
_CAPABILITY_COUNTS = ("capability_set", "num_capability_steps", "num_capability_failed")
NO_GENERAL = "General capability (Gen) is not in this run; jobs/fur_capability.py measures it."


def table_1(data: PaperData) -> Exhibit:
    """A line per model, the three measures per data set, at the rate that the rule selects."""
    entries = data.measured
    if not entries:
        return empty(NAME, TITLE, NO_RATE)

    def cells(entry: Entry) -> Sequence[Cell]:
        assert entry.cell is not None
        values = (entry.cell.efficacy, entry.cell.specificity, _general(entry, "after"))
        names = ("efficacy", "specificity", "capability_after")
        found = [
            value_cell(value, published=entry.printed(NAME, name)) for value, name in zip(values, names, strict=True)
        ]
        return [infeasible_mark(entry, found[0]), *found[1:]]

    grid = _with_base(matrix(data, MEASURES, cells, entries=entries), entries)
    notes = [
        "Percent. Eff: share of its probability that the unlearned step loses, mean over iterations, steps and "
        "problems. Spec: share of held-out answers that stay. Gen: accuracy on general questions, before (Base) and "
        "after.",
        *common_notes(entries, grid),
    ]
    if not any(entry.capability for entry in entries):
        notes.append(NO_GENERAL)
    return Exhibit(NAME, TITLE, _frame(entries), grid, notes=tuple(notes))


def _with_base(grid: Grid, entries: Sequence[Entry]) -> Grid:
    column = []
    for label in dict.fromkeys(entry.label for entry in entries):
        own = [entry for entry in entries if entry.label == label]
        known = [entry.capability.before for entry in own if entry.capability]
        column.append(_base_cell(known, _printed(own[0], "capability_before")))
    first, second = grid.heads[0], grid.heads[1]
    heads = ((first[0], Head("Base"), *first[1:]), (second[0], Head("Gen"), *second[1:]))
    rows = tuple((row[0], base, *row[1:]) for row, base in zip(grid.rows, column, strict=True))
    return Grid(heads, rows)


def _base_cell(known: Sequence[Estimate], shown: str | None) -> Cell:
    values = sorted({percent(estimate.value) for estimate in known})
    if len(values) > 1:
        return Cell("–".join((values[0], values[-1])), (), "data sets were measured on different questions")
    return value_cell(known[0] if known else undefined(NO_GENERAL), published=shown)


def _general(entry: Entry, name: Literal["before", "after"]) -> Estimate:
    found = entry.capability
    if found is None:
        return undefined(NO_GENERAL)
    return found.before if name == "before" else found.after


def _printed(entry: Entry, name: str) -> str | None:
    # The base model's accuracy does not depend on the data set.
    if name == "capability_before":
        return published(NAME, entry.model, "", name)
    return entry.printed(NAME, name)


def _frame(entries: Sequence[Entry]) -> pd.DataFrame:
    rows = []
    for entry in entries:
        assert entry.cell is not None
        found = entry.capability
        row = entry.names | {"lr": entry.cell.lr, "feasible": entry.is_chosen}
        values = {
            "efficacy": entry.cell.efficacy,
            "specificity": entry.cell.specificity,
            "capability_before": _general(entry, "before"),
            "capability_after": _general(entry, "after"),
        }
        for name, value in values.items():
            row |= estimate_columns(name, value) | {f"{name}_published": _printed(entry, name)}
        counts = (found.capability_set, found.num_steps, found.num_failed) if found else (None, 0, 0)
        rows.append(row | dict(zip(_CAPABILITY_COUNTS, counts, strict=True)))
    return pd.DataFrame(rows)
