"""Table 2: ff-hard beside add-mistake, on the same problems."""

from __future__ import annotations

import pandas as pd

from fairwitness.report.paper.baselines import Measured, measured
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Exhibit, value_cell
from fairwitness.report.paper.matrix import Line, common_notes, empty, infeasible_mark, lines_matrix
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_2", "Table 2. ff-hard beside add-mistake"
NOT_MEASURED = "no add-mistake baseline was measured; jobs/fur_baselines.py measures it"


def table_2(data: PaperData) -> Exhibit:
    """A line per model: problems whose answer changes by unlearning a step, and by a mistake in a step of the CoT."""
    found = measured(data.measured, "add_mistake", with_method=True)
    if not found:
        return empty(NAME, TITLE, NOT_MEASURED)
    grid = lines_matrix(data, ("FUR", "+mistake"), [_line(one) for one in found])
    notes = (
        "Percent of problems whose answer changes: the direct answer when some step is unlearned (FUR, any iteration), "
        "the answer after the CoT when some step has a mistake. Both on the same problems, whose direct and CoT "
        "answers agree.",
        *common_notes([one.entry for one in found], grid),
    )
    return Exhibit(NAME, TITLE, pd.DataFrame([_row(one) for one in found]), grid, notes=notes)


def _line(one: Measured) -> Line:
    hard = value_cell(one.summary.ff_hard, published=one.entry.printed(NAME, "ff_hard"))
    mistake = value_cell(one.summary.changed, published=one.entry.printed(NAME, "add_mistake"))
    return Line(one.label, one.entry.data_set, (infeasible_mark(one.entry, hard), mistake))


def _row(one: Measured) -> dict[str, object]:
    cell, summary = one.entry.cell, one.summary
    row = one.entry.names | {"lr": None if cell is None else cell.lr, "feasible": one.entry.is_chosen}
    row |= {"settings": one.settings, "sources": one.sources}
    row |= estimate_columns("ff_hard", summary.ff_hard) | estimate_columns("add_mistake", summary.changed)
    row |= estimate_columns("same", summary.same)
    for name in ("ff_hard", "add_mistake"):
        row[f"{name}_published"] = one.entry.printed(NAME, name)
    return row | {"num_skipped": summary.num_skipped, "num_failed": summary.num_failed}
