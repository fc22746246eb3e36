"""Table 3: does the CoT written after unlearning argue for another answer, as a judge reads it?"""

from __future__ import annotations

import pandas as pd

from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Exhibit, value_cell
from fairwitness.report.paper.judged import judged_lines, mark_notes
from fairwitness.report.paper.matrix import PUBLISHED, Line, empty, lines_matrix

NAME, TITLE = "table_3", "Table 3. Judged chains of thought after unlearning"
NOT_JUDGED = "no CoT after unlearning was judged; jobs/fur_judge.py asks a judge"


def table_3(data: PaperData) -> Exhibit:
    """A line per model (and judge), the share of steps after whose unlearning the CoT argues for another answer."""
    found = judged_lines(data, lora=False)
    if not found:
        return empty(NAME, TITLE, NOT_JUDGED)
    cells = [one.marked(value_cell(one.different, published=one.printed(NAME))) for one in found]
    lines = [Line(one.label, one.cell.data_set, (cell,)) for one, cell in zip(found, cells, strict=True)]
    notes = [
        "Percent: of the judged steps whose unlearning changed the direct answer, the share after which the CoT "
        "supports another answer than the CoT before, as the judge reads both; n: problems, which the interval "
        "resamples. Unclear verdicts count as not different.",
        *mark_notes(found),
    ]
    if any(one.printed(NAME) for one in found):
        notes.append(PUBLISHED)
    frame = pd.DataFrame([one.row | {"different_published": one.printed(NAME)} for one in found])
    return Exhibit(NAME, TITLE, frame, lines_matrix(data, ("different",), lines), notes=tuple(notes))
