"""Table 10: the same question as Table 3 after unlearning with LoRA, by rank."""

from __future__ import annotations

import pandas as pd

from fairwitness.report.format import decimal
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Cell, Exhibit, value_cell
from fairwitness.report.paper.judged import JudgedLine, judged_lines, mark_notes
from fairwitness.report.paper.matrix import Line, empty, lines_matrix

NAME, TITLE = "table_10", "Table 10. Judged chains of thought after unlearning with LoRA"
NOT_JUDGED = (
    "no CoT after unlearning with LoRA was judged; jobs/fur_sweep.py with a LoRA method and measure.cot_after writes "
    "them, jobs/fur_judge.py asks a judge"
)
FEW = 5
"""Fewer judged steps than this are greyed, as in the paper."""


def table_10(data: PaperData) -> Exhibit:
    """A line per model and rank, the share of steps after whose unlearning the CoT argues for another answer."""
    found = judged_lines(data, lora=True)
    if not found:
        return empty(NAME, TITLE, NOT_JUDGED)
    lines = [Line(one.label, one.cell.data_set, (_cell(one),)) for one in found]
    notes = [f"Shares as in Table 3. Grey: fewer than {FEW} judged steps.", *mark_notes(found)]
    frame = pd.DataFrame([one.row for one in found])
    return Exhibit(NAME, TITLE, frame, lines_matrix(data, ("different",), lines), notes=tuple(notes))


def _cell(one: JudgedLine) -> Cell:
    return one.marked(value_cell(one.different, form=decimal), is_grey=one.different.denominator < FEW)
