"""Table 11: ff-hard of single steps at the chosen rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pandas as pd

from fairwitness.analysis.columns import columns_of, estimate_columns
from fairwitness.report.format import decimal, percent, rate
from fairwitness.report.paper.data import Entry, PaperData, published
from fairwitness.report.paper.exhibit import (
    NO_PROBLEM,
    NO_RATE,
    PUBLISHED,
    Cell,
    Exhibit,
    Grid,
    Head,
    common_notes,
    empty,
    import_notes,
    infeasible_mark,
    matrix,
    value_cell,
    words,
)
from fairwitness.stats.bootstrap import Estimate, undefined

TABLE_1, TABLE_1_TITLE = "table_1", "Table 1. Efficacy, specificity and general capability"
MEASURES_1 = ("Eff", "Spec", "Gen")
_CAPABILITY_COUNTS = ("capability_set", "num_capability_steps", "num_capability_failed")
NO_GENERAL = "General capability (Gen) is not in this run; fairwitness capability measures it."


def table_1(data: PaperData) -> Exhibit:
    """A line per model, the three measures per data set, at the rate that the rule selects."""
    entries = data.measured
    if not entries:
        return empty(TABLE_1, TABLE_1_TITLE, NO_RATE)

    def cells(entry: Entry) -> Sequence[Cell]:
        assert entry.cell is not None
        values = (entry.cell.efficacy, entry.cell.specificity, _general(entry, "after"))
        names = ("efficacy", "specificity", "capability_after")
        found = [
            value_cell(value, published=entry.printed(TABLE_1, name)) for value, name in zip(values, names, strict=True)
        ]
        return [infeasible_mark(entry, found[0]), *found[1:]]

    grid = _with_base(matrix(data, MEASURES_1, cells, entries=entries), entries)
    notes = [
        "Percent. Eff: share of its probability that the unlearned step loses, mean over iterations, steps and "
        "problems. Spec: share of held-out answers that stay. Gen: accuracy on general questions, before (Base) and "
        "after.",
        *common_notes(entries, grid),
    ]
    if not any(entry.capability for entry in entries):
        notes.append(NO_GENERAL)
    return Exhibit(TABLE_1, TABLE_1_TITLE, _frame(entries), grid, notes=tuple(notes))


def _with_base(grid: Grid, entries: Sequence[Entry]) -> Grid:
    column = []
    for label in dict.fromkeys(entry.label for entry in entries):
        own = [entry for entry in entries if entry.label == label]
        known = [entry.capability.before for entry in own if entry.capability]
        column.append(_base_cell(known, _printed_cell(own[0], "capability_before")))
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


def _printed_cell(entry: Entry, name: str) -> str | None:
    # The base model's accuracy does not depend on the data set.
    if name == "capability_before":
        return published(TABLE_1, entry.model, "", name)
    return entry.printed(TABLE_1, name)


def _frame(entries: Sequence[Entry]) -> pd.DataFrame:
    rows = []
    for entry in entries:
        assert entry.cell is not None
        found = entry.capability
        row = entry.cell_names
        values = {
            "efficacy": entry.cell.efficacy,
            "specificity": entry.cell.specificity,
            "capability_before": _general(entry, "before"),
            "capability_after": _general(entry, "after"),
        }
        for name, value in values.items():
            row |= estimate_columns(name, value) | {f"{name}_published": _printed_cell(entry, name)}
        counts = (found.capability_set, found.num_steps, found.num_failed) if found else (None, 0, 0)
        rows.append(row | dict(zip(_CAPABILITY_COUNTS, counts, strict=True)))
    return pd.DataFrame(rows)


TABLE_5, TABLE_5_TITLE = "table_5", "Table 5. Accuracy without and with a chain of thought"
ACCURACIES = ("direct_accuracy", "cot_accuracy")


def table_5(data: PaperData) -> Exhibit:
    """A line per model, accuracy of the direct answer and of the answer after the CoT per data set."""
    entries = data.bases
    if not entries:
        return empty(TABLE_5, TABLE_5_TITLE, NO_PROBLEM)

    def cells(entry: Entry) -> Sequence[Cell]:
        return [
            value_cell(getattr(entry.health, name), form=decimal, published=_printed_accuracy(entry, name))
            for name in ACCURACIES
        ]

    grid = matrix(data, ("no CoT", "CoT"), cells, entries=entries, labels=lambda entry: entry.base_label)
    frame = pd.DataFrame([_row(entry) for entry in entries])
    notes = (
        "Share of right answers, of all problems whose right answer is known.",
        *import_notes(entries),
        *common_notes((), grid),
    )
    return Exhibit(TABLE_5, TABLE_5_TITLE, frame, grid, notes=notes)


def _printed_accuracy(entry: Entry, name: str) -> str | None:
    return None if entry.is_import else published(TABLE_5, entry.model, entry.data_set, name)


def _row(entry: Entry) -> dict[str, object]:
    row = dict(entry.base_names)
    for name in ACCURACIES:
        row |= estimate_columns(name, getattr(entry.health, name))
        row[f"{name}_published"] = _printed_accuracy(entry, name)
    return row


TABLE_6, TABLE_6_TITLE = "table_6", "Table 6. Steps of a chain of thought"


def table_6(data: PaperData) -> Exhibit:
    """A line per model, the mean number of steps per data set, over every CoT of the run."""
    entries = data.bases
    if not entries:
        return empty(TABLE_6, TABLE_6_TITLE, NO_PROBLEM)

    def shown(entry: Entry) -> str | None:
        return None if entry.is_import else published(TABLE_6, entry.model, entry.data_set, "steps_per_cot")

    def cells(entry: Entry) -> Sequence[Cell]:
        return [value_cell(entry.health.steps_per_cot, form=decimal, published=shown(entry))]

    grid = matrix(data, ("steps",), cells, entries=entries, labels=lambda entry: entry.base_label)
    rows = [
        entry.base_names | columns_of(entry.health, ["steps_per_cot"]) | {"steps_per_cot_published": shown(entry)}
        for entry in entries
    ]
    notes = (
        "Mean number of sentences that a CoT is cut into, over all CoTs.",
        *import_notes(entries),
        *common_notes((), grid),
    )
    return Exhibit(TABLE_6, TABLE_6_TITLE, pd.DataFrame(rows), grid, notes=notes)


TABLE_8, TABLE_8_TITLE = "table_8", "Table 8. Selection of the learning rate"
MEASURES_8 = {"Eff": "efficacy", "Spec": "specificity", "FF": "ff_hard_any"}
_PRINTED = {"efficacy": "efficacy", "specificity": "specificity", "ff_hard_any": "ff_hard"}


def table_8(data: PaperData) -> Exhibit:
    """A line per model and rate, three measures per data set, the chosen rate of each marked."""
    entries = data.measured
    if not entries:
        return empty(TABLE_8, TABLE_8_TITLE, NO_RATE)
    data_sets = [name for name in data.data_sets if any(entry.data_set == name for entry in entries)]
    heads = (
        (Head("Model", is_text=True), Head("Rate", is_text=True), *[Head(name, len(MEASURES_8)) for name in data_sets]),
        (Head(""), Head(""), *[Head(measure) for _ in data_sets for measure in MEASURES_8]),
    )
    grid = Grid(heads, tuple(_lines(entries, data_sets)))
    bounds = sorted({entry.run.min_specificity for entry in entries})
    notes = [
        "Percent. Marked: the rate of highest efficacy among those whose specificity rounds to "
        f"{' or '.join(f'{bound:g}' for bound in bounds)} or more. FF (ff-hard, a change at any iteration) plays no "
        "part.",
        *[f"{e.label} on {e.data_set}: {e.panel.no_rate_reason}" for e in entries if not e.is_chosen],
    ]
    if any(line.startswith("paper ") for row in grid.rows for cell in row for line in cell.lines):
        notes.append(PUBLISHED)
    return Exhibit(TABLE_8, TABLE_8_TITLE, _rates_frame(entries), grid, notes=tuple(notes))


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
    for measure in MEASURES_8.values():
        if entry is None or cell is None:
            yield Cell()
        else:
            mark = "chosen" if cell is entry.panel.chosen_cell else ""
            yield value_cell(getattr(cell, measure), published=entry.printed(TABLE_8, _PRINTED[measure], lr), mark=mark)


def _rates_frame(entries: Sequence[Entry]) -> pd.DataFrame:
    rows = []
    for entry in entries:
        for cell in entry.panel.cells:
            row = entry.names | {"lr": cell.lr, "chosen": cell is entry.panel.chosen_cell, "cell_key": cell.cell_key}
            for measure in MEASURES_8.values():
                row |= estimate_columns(measure, getattr(cell, measure))
                row[f"{measure}_published"] = entry.printed(TABLE_8, _PRINTED[measure], cell.lr)
            rows.append(row | columns_of(cell, ("num_tasks_ok", "num_problems")))
    return pd.DataFrame(rows)


TABLE_11, TABLE_11_TITLE = "table_11", "Table 11. Steps whose unlearning changes the answer"


def table_11(data: PaperData) -> Exhibit:
    """A line per model, the share of steps per data set; problems whose direct and CoT answers agree."""
    entries = data.measured
    if not entries:
        return empty(TABLE_11, TABLE_11_TITLE, NO_RATE)

    def shown(entry: Entry) -> str | None:
        return entry.printed(TABLE_11, "step_flip")

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
        row = entry.cell_names | columns_of(entry.cell, ("step_flip_any", "step_flip_final"))
        rows.append(row | {"step_flip_published": shown(entry)})
    notes = (
        "Percent of measured steps whose unlearning changes the direct answer at any iteration; n: problems, which the "
        "interval resamples.",
        *common_notes(entries, grid),
    )
    return Exhibit(TABLE_11, TABLE_11_TITLE, pd.DataFrame(rows), grid, notes=notes)
