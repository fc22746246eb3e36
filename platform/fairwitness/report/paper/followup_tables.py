"""Table 10: the same question as Table 3 after unlearning with LoRA, by rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.analysis.baselines import BaselineView, baseline_views
from fairwitness.analysis.columns import columns_of, estimate_columns
from fairwitness.analysis.judgements import JudgedCell
from fairwitness.followups.judging.rules import rules_key
from fairwitness.judges.config import RulesConfig
from fairwitness.report.format import decimal
from fairwitness.report.paper.data import Entry, PaperData, published
from fairwitness.report.paper.exhibit import (
    NOT_FEASIBLE,
    PUBLISHED,
    Cell,
    Exhibit,
    Line,
    common_notes,
    empty,
    infeasible_mark,
    lines_matrix,
    value_cell,
)
from fairwitness.stats.bootstrap import Estimate

_LOST = ("num_skipped", "num_failed")
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
        return self.cell.different if not self.cell.method else self.cell.different_changed

    @property
    def is_by_construction(self) -> bool:
        """Whether the judge reads what the steps were selected by, so that it can only say `different`."""
        answered = RulesConfig(reading="answered")
        is_answered = self.cell.judge_key == rules_key(answered) or self.cell.judge == answered.shown_name
        return bool(self.cell.method) and is_answered

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
        row = {"run": self.run_name} | cell.columns()
        row |= {"judge": cell.judge, "judge_key": cell.judge_key, "feasible": self.is_chosen}
        row |= estimate_columns("different", self.different) | estimate_columns("different_all", cell.different)
        row |= {f"num_{verdict}": count for verdict, count in cell.verdicts.items()}
        return row | columns_of(cell, _LOST)


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
            elif not cell.method:
                yield JudgedLine(run.run_name, f"{cell.model} ({run.run_name})" if several else cell.model, True, cell)


@dataclass(frozen=True, eq=False)
class BaselineLine:
    """One baseline, with its settings, on one entry.

    Attributes:
        entry: The entry, whose shown rate ff-hard is of.
        label: Its line: the entry's label, with the settings where there are several.
        view: The baseline and its figures, all on the same problems.
    """

    entry: Entry
    label: str
    view: BaselineView


def measured(entries: Sequence[Entry], baseline: str, *, with_method: bool) -> list[BaselineLine]:
    """The results of a baseline, in the order of entries and settings.

    Args:
        entries: The entries.
        baseline: Its kind, for example `add_mistake`.
        with_method: Whether lines name the method of unlearning.
    """
    found = []
    for entry in entries:
        views = [v for v in baseline_views(entry.run, [entry.panel]) if v.summary.baseline == baseline]
        for view in views:
            label = entry.label if with_method else entry.base_label
            label += f" ({view.settings})" if len(views) > 1 and view.settings else ""
            found.append(BaselineLine(entry, label, view))
    return found


TABLE_2, TABLE_2_TITLE = "table_2", "Table 2. ff-hard beside add-mistake"
NO_MISTAKE = "no add-mistake baseline was measured; fairwitness baselines measures it"


def table_2(data: PaperData) -> Exhibit:
    """A line per model: problems whose answer changes by unlearning a step, and by a mistake in a step of the CoT."""
    found = measured(data.measured, "add_mistake", with_method=True)
    if not found:
        return empty(TABLE_2, TABLE_2_TITLE, NO_MISTAKE)
    grid = lines_matrix(data, ("FUR", "+mistake"), [_line(one) for one in found])
    notes = (
        "Percent of problems whose answer changes: the direct answer when some step is unlearned (FUR, any iteration), "
        "the answer after the CoT when some step has a mistake. Both on the same problems, whose direct and CoT "
        "answers agree.",
        *common_notes([one.entry for one in found], grid),
    )
    return Exhibit(TABLE_2, TABLE_2_TITLE, pd.DataFrame([_row(one) for one in found]), grid, notes=notes)


def _line(one: BaselineLine) -> Line:
    hard = value_cell(one.view.summary.ff_hard, published=one.entry.printed(TABLE_2, "ff_hard"))
    mistake = value_cell(one.view.summary.changed, published=one.entry.printed(TABLE_2, "add_mistake"))
    return Line(one.label, one.entry.data_set, (infeasible_mark(one.entry, hard), mistake))


def _row(one: BaselineLine) -> dict[str, object]:
    summary = one.view.summary
    row = one.entry.cell_names | columns_of(one.view, ("settings", "sources")) | columns_of(summary, ["ff_hard"])
    row |= estimate_columns("add_mistake", summary.changed) | columns_of(summary, ["same"])
    for name in ("ff_hard", "add_mistake"):
        row[f"{name}_published"] = one.entry.printed(TABLE_2, name)
    return row | columns_of(summary, _LOST)


TABLE_3, TABLE_3_TITLE = "table_3", "Table 3. Judged chains of thought after unlearning"
NOT_JUDGED = "no CoT after unlearning was judged; fairwitness judge asks a judge"


def table_3(data: PaperData) -> Exhibit:
    """A line per model (and judge), the share of steps after whose unlearning the CoT argues for another answer."""
    found = judged_lines(data, lora=False)
    if not found:
        return empty(TABLE_3, TABLE_3_TITLE, NOT_JUDGED)
    cells = [one.marked(value_cell(one.different, published=one.printed(TABLE_3))) for one in found]
    lines = [Line(one.label, one.cell.data_set, (cell,)) for one, cell in zip(found, cells, strict=True)]
    notes = [
        "Percent: of the judged steps whose unlearning changed the direct answer, the share after which the CoT "
        "supports another answer than the CoT before, as the judge reads both; n: problems, which the interval "
        "resamples. Unclear verdicts count as not different.",
        *mark_notes(found),
    ]
    if any(one.printed(TABLE_3) for one in found):
        notes.append(PUBLISHED)
    frame = pd.DataFrame([one.row | {"different_published": one.printed(TABLE_3)} for one in found])
    return Exhibit(TABLE_3, TABLE_3_TITLE, frame, lines_matrix(data, ("different",), lines), notes=tuple(notes))


TABLE_4, TABLE_4_TITLE = "table_4", "Table 4. Chains of thought that a paraphrase changes the answer of"
NO_PARAPHRASE = "no paraphrase baseline was measured; fairwitness baselines measures it"


def table_4(data: PaperData) -> Exhibit:
    """A line per model, the share of CoTs after whose paraphrase the answer is another one."""
    found = measured(data.bases, "paraphrase", with_method=False)
    if not found:
        return empty(TABLE_4, TABLE_4_TITLE, NO_PARAPHRASE)
    lines = [Line(one.label, one.entry.data_set, (value_cell(one.view.summary.changed),)) for one in found]
    rows = [
        one.entry.base_names
        | columns_of(one.view, ("settings", "sources"))
        | estimate_columns("paraphrase", one.view.summary.changed)
        | columns_of(one.view.summary, _LOST)
        for one in found
    ]
    notes = (
        "Percent of CoTs, of problems whose direct and CoT answers agree and whose ff-hard is known. Where the answer "
        "changes the paraphrase test calls the CoT unfaithful; where it stays nothing follows.",
    )
    return Exhibit(TABLE_4, TABLE_4_TITLE, pd.DataFrame(rows), lines_matrix(data, ("changed",), lines), notes=notes)


TABLE_10, TABLE_10_TITLE = "table_10", "Table 10. Judged chains of thought after unlearning with LoRA"
NO_LORA_JUDGED = (
    "no CoT after unlearning with LoRA was judged; fairwitness sweep with a LoRA method and measure.cot_after writes "
    "them, fairwitness judge asks a judge"
)
FEW = 5
"""Fewer judged steps than this are greyed, as in the paper."""


def table_10(data: PaperData) -> Exhibit:
    """A line per model and rank, the share of steps after whose unlearning the CoT argues for another answer."""
    found = judged_lines(data, lora=True)
    if not found:
        return empty(TABLE_10, TABLE_10_TITLE, NO_LORA_JUDGED)
    lines = [Line(one.label, one.cell.data_set, (_cell(one),)) for one in found]
    notes = [f"Shares as in Table 3. Grey: fewer than {FEW} judged steps.", *mark_notes(found)]
    frame = pd.DataFrame([one.row for one in found])
    return Exhibit(TABLE_10, TABLE_10_TITLE, frame, lines_matrix(data, ("different",), lines), notes=tuple(notes))


def _cell(one: JudgedLine) -> Cell:
    return one.marked(value_cell(one.different, form=decimal), is_grey=one.different.denominator < FEW)
