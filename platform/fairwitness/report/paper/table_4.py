"""Table 4: CoTs that the paraphrase baseline calls unfaithful."""

from __future__ import annotations

import pandas as pd

from fairwitness.report.paper.baselines import measured
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Exhibit, value_cell
from fairwitness.report.paper.matrix import Line, empty, lines_matrix
from fairwitness.report.tables import estimate_columns

NAME, TITLE = "table_4", "Table 4. Chains of thought that a paraphrase changes the answer of"
NOT_MEASURED = "no paraphrase baseline was measured; jobs/fur_baselines.py measures it"


def table_4(data: PaperData) -> Exhibit:
    """A line per model, the share of CoTs after whose paraphrase the answer is another one."""
    found = measured(data.bases, "paraphrase", with_method=False)
    if not found:
        return empty(NAME, TITLE, NOT_MEASURED)
    lines = [Line(one.label, one.entry.data_set, (value_cell(one.summary.changed),)) for one in found]
    rows = [
        one.entry.base_names
        | {"settings": one.settings, "sources": one.sources}
        | estimate_columns("paraphrase", one.summary.changed)
        | {"num_skipped": one.summary.num_skipped, "num_failed": one.summary.num_failed}
        for one in found
    ]
    notes = (
        "Percent of CoTs, of problems whose direct and CoT answers agree and whose ff-hard is known. Where the answer "
        "changes the paraphrase test calls the CoT unfaithful; where it stays nothing follows.",
    )
    return Exhibit(NAME, TITLE, pd.DataFrame(rows), lines_matrix(data, ("changed",), lines), notes=notes)
