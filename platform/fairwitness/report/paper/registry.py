"""Every table and figure of the paper report, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.figure_3 import figure_3
from fairwitness.report.paper.figure_4 import figure_4
from fairwitness.report.paper.figure_5 import figure_5
from fairwitness.report.paper.figure_6 import figure_6
from fairwitness.report.paper.figure_7 import figure_7, figure_9, figure_10
from fairwitness.report.paper.table_1 import table_1
from fairwitness.report.paper.table_2 import table_2
from fairwitness.report.paper.table_3 import table_3
from fairwitness.report.paper.table_4 import table_4
from fairwitness.report.paper.table_5 import table_5
from fairwitness.report.paper.table_6 import table_6
from fairwitness.report.paper.table_8 import table_8
from fairwitness.report.paper.table_10 import table_10
from fairwitness.report.paper.table_11 import table_11

EXHIBITS: Mapping[str, Callable[[PaperData], Exhibit]] = {
    "table_1": table_1,
    "table_2": table_2,
    "table_3": table_3,
    "table_4": table_4,
    "table_5": table_5,
    "table_6": table_6,
    "table_8": table_8,
    "table_10": table_10,
    "table_11": table_11,
    "figure_3": figure_3,
    "figure_4": figure_4,
    "figure_5": figure_5,
    "figure_6": figure_6,
    "figure_7": figure_7,
    "figure_9": figure_9,
    "figure_10": figure_10,
}
"""What makes each exhibit, by its name; one that the runs have no data for says which job fills it."""
