"""What judges found about the CoTs written after unlearning, line by line, for Tables 3 and 10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairwitness.fur.judging.results import JudgedCell
from fairwitness.fur.judging.rules import rules_key
from fairwitness.judges.config import RulesConfig
from fairwitness.report.paper.data import PaperData
from fairwitness.report.paper.exhibit import Cell
from fairwitness.report.paper.matrix import NOT_FEASIBLE
from fairwitness.report.paper.published import published
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate

BY_CONSTRUCTION = (
    "‡ 100% by construction: judged are only steps after which the answer after the CoT is the changed direct answer, "
    "and this judge compares those answers; it does not read the CoT."
)


@dataclass(frozen=True, eq=False)
class JudgedLine:
    """One judge's verdicts on one model and data set, at the rate that tables show.

    Attributes:
        run_name: The run.
        label: Its line: model, method and run as in other tables, and the judge where there are several.
        is_chosen: Whether the rule selects the rate; true for judgements from elsewhere, which have none.
        cell: The verdicts.
    """

    run_name: str
    label: str
    is_chosen: bool
    cell: JudgedCell

    @property
    def different(self) -> Estimate:
        """Share of `different` among steps that changed the direct answer, as in the paper.

        Judgements from elsewhere do not say which steps those are; they are of such steps by the paper's selection.
        """
        return self.cell.different if self.cell.method is None else self.cell.different_changed

    @property
    def is_by_construction(self) -> bool:
        """Whether the judge reads what the steps were selected by, so that it can only say `different`."""
        answered = rules_key(RulesConfig(reading="answered"))
        return self.cell.method is not None and self.cell.judge_key == answered

    def marked(self, cell: Cell, *, is_grey: bool = False) -> Cell:
        """The cell with † where its rate is only the nearest miss, and ‡ where its figure says nothing."""
        text = cell.text + ("" if self.is_chosen else " †") + (" ‡" if self.is_by_construction else "")
        is_grey = is_grey or not self.is_chosen or self.is_by_construction
        return Cell(text, cell.lines, cell.title, "grey" if is_grey else "")

    def printed(self, table: str) -> str | None:
        """The paper's own figure; none for LoRA, nor beside a figure that says nothing."""
        has_none = self.cell.method == "lora" or self.is_by_construction
        return None if has_none else published(table, self.cell.model, self.cell.data_set, "different")

    @property
    def row(self) -> dict[str, Any]:
        """The columns of the data behind the table."""
        cell = self.cell
        names = ("model", "data_set", "method", "lora_rank", "lr", "judge", "judge_key")
        row = {"run": self.run_name} | {name: getattr(cell, name) for name in names} | {"feasible": self.is_chosen}
        row |= estimate_columns("different", self.different) | estimate_columns("different_all", cell.different)
        row |= {f"num_{verdict}": count for verdict, count in cell.verdicts.items()}
        return row | {"num_skipped": cell.num_skipped, "num_failed": cell.num_failed}


def judged_lines(data: PaperData, *, lora: bool) -> list[JudgedLine]:
    """The verdicts on full FF2 (and those from elsewhere), or those on LoRA, at the rates that tables show."""
    found = [line for line in _lines(data) if (line.cell.method == "lora") == lora]
    judges = {line.cell.judge_key for line in found}
    if len(judges) < 2:
        return found
    return [JudgedLine(x.run_name, f"{x.label}, judge {x.cell.judge}", x.is_chosen, x.cell) for x in found]


def mark_notes(found: Sequence[JudgedLine]) -> list[str]:
    """What the marks of `JudgedLine.marked` mean, where there are some."""
    notes = [] if all(one.is_chosen for one in found) else [NOT_FEASIBLE]
    return [*notes, BY_CONSTRUCTION] if any(one.is_by_construction for one in found) else notes


def _lines(data: PaperData) -> Iterator[JudgedLine]:
    shown = {entry.cell.cell_key: entry for entry in data.measured if entry.cell is not None}
    several = len(data.judged) > 1
    for run in data.judged:
        for cell in run.cells:
            entry = shown.get(cell.cell_key or "")
            if entry is not None:
                yield JudgedLine(run.run_name, entry.label, entry.is_chosen, cell)
            elif cell.method is None:
                yield JudgedLine(run.run_name, f"{cell.model} ({run.run_name})" if several else cell.model, True, cell)
