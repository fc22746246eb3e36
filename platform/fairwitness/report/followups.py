"""What baselines, general capability, judges and the comparison of methods show, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwitness.analysis.baselines import CC_SHAP, BaselineView
from fairwitness.analysis.capability import CellCapability
from fairwitness.analysis.frames import Results
from fairwitness.analysis.judgements import VERDICTS, JudgedCell
from fairwitness.analysis.overlap import MethodGroup
from fairwitness.analysis.panels import Panel
from fairwitness.judges.agreement import PairAgreement, pair_agreements
from fairwitness.report.findings import with_interval
from fairwitness.report.format import decimal, percent, plural, rate, signed
from fairwitness.stats.bootstrap import Estimate


def baseline_lines(run_dir: Path) -> tuple[str, ...]:
    """The table in sentences, a line per model, data set and baseline.

    Raises:
        StoreError: There is no run, or it cannot be read.
    """
    return tuple(map(_line, Results(run_dir).baselines))


def _line(view: BaselineView) -> str:
    panel, summary = view.panel, view.summary
    head = f"{panel.model} on {panel.data_set}, {view.name}{f' ({view.settings})' if view.settings else ''}: "
    hard = summary.ff_hard
    beside = f"ff-hard at {rate(panel.shown_cell.lr) if panel.shown_cell else 'no rate'} {with_interval(hard)}"
    if summary.baseline != CC_SHAP:
        same = f"both or neither in {with_interval(summary.same)}"
        shown = f"answer changed in {with_interval(summary.changed)}, {beside}; {same}"
    else:
        score = summary.score
        mean = "undefined" if score.value is None else f"{decimal(score.value, 3)} (n {int(score.denominator)})"
        shown = f"mean score {mean}, undefined for {with_interval(summary.score_undefined)}, {beside}"
    return f"{head}{shown}; {int(hard.denominator)} problems"


def capability_lines(cells: Sequence[CellCapability]) -> Iterator[str]:
    """A sentence per cell."""
    for cell in cells:
        method = "" if cell.method == "ff2" else f" ({cell.method_name})"
        failed = f"; {plural(cell.num_failed, 'step')} failed" if cell.num_failed else ""
        yield (
            f"{cell.model} on {cell.data_set}{method}, rate {rate(cell.lr)}: accuracy on {cell.capability_set} "
            f"{with_interval(cell.before)} before and {with_interval(cell.after)} after unlearning one step, "
            f"a change of {change_points(cell)} percentage points; {percent(cell.changed.value)}% of answers changed "
            f"({plural(cell.num_cots, 'CoT')}, {plural(cell.num_steps, 'step')}, "
            f"{plural(cell.num_questions, 'question')}{failed})."
        )


def change_points(cell: CellCapability) -> str:
    """The change in percentage points with its interval over CoTs."""
    change = cell.change
    assert change.value is not None
    if change.low is None or change.high is None:
        return signed(100 * change.value, 1)
    return f"{signed(100 * change.value, 1)} ({signed(100 * change.low, 1)} to {signed(100 * change.high, 1)})"


@dataclass(frozen=True)
class Judged:
    """The section of the page.

    Attributes:
        cells: One judge on one model, data set and rate.
        agreements: Pairs of judges.
    """

    cells: tuple[JudgedCell, ...]
    agreements: tuple[PairAgreement, ...]

    @property
    def cautions(self) -> list[str]:
        """What makes the shares doubtful."""
        return [line for line in map(caution, self.cells) if line is not None]

    @property
    def num_judgements(self) -> int:
        """Judgements, those without a verdict included."""
        return sum(cell.num_judged + cell.num_skipped + cell.num_failed for cell in self.cells)


def load_judged(results: Results) -> Judged | None:
    """The judgements of the run's cells; None where there are none.

    Raises:
        StoreError: The store cannot be read.
    """
    if not results.judged:
        return None
    rows = results.store.read("judgements").to_pandas()
    cell_keys = results.run.info["cell_keys"]
    rows = rows[rows["judge_key"].isin([cell.judge_key for cell in results.judged])]
    within = rows if cell_keys is None else rows[rows["cell_key"].isin(list(cell_keys))]
    return Judged(tuple(results.judged), tuple(pair_agreements(within, seed=results.run.seed)))


def sentence(cell: JudgedCell) -> str:
    """What one judge found, in a line."""
    counts = ", ".join(f"{cell.verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    parts = [
        f"{plural(cell.num_judged, 'step')} judged: {counts}",
        f"CoT argues for another answer {_share(cell.different)}{_beside(cell)}",
        f"where the direct answer changed {_share(cell.different_changed)}",
        f"{cell.num_skipped} skipped, {cell.num_failed} without verdict ({cell.num_unparsable} unparsable)",
    ]
    return f"{_where(cell)}, judge {cell.judge}: {'; '.join(parts)}"


def caution(cell: JudgedCell) -> str | None:
    """What makes the shares of a cell doubtful: that most of its verdicts are `unclear`; None where they are not."""
    unclear = cell.verdicts["unclear"]
    if 2 * unclear <= cell.num_judged:
        return None
    return (
        f"{_where(cell)}, judge {cell.judge}: {unclear} of {cell.num_judged} unclear: this judge can read few of these "
        "CoTs, and the share that argues for another answer says little."
    )


def _beside(cell: JudgedCell) -> str:
    """The unclear ones, and what the others say."""
    unclear = cell.verdicts["unclear"]
    if not unclear:
        return ""
    clear = cell.num_judged - unclear
    among = f", {cell.verdicts['different']} of the {clear} with a clear verdict" if clear else ""
    return f"{among}, and is unclear in {percent(unclear / cell.num_judged)}% ({unclear}/{cell.num_judged})"


def _where(cell: JudgedCell) -> str:
    where = f"{cell.model} on {cell.data_set}"
    where += "" if cell.lr is None else f" at rate {rate(cell.lr)}"
    return where + ("" if cell.lora_rank is None else f" (LoRA rank {cell.lora_rank})")


def _share(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"undefined ({estimate.reason})"
    interval = "no interval" if estimate.low is None else f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)}% ({int(estimate.numerator)}/{int(estimate.denominator)}, {interval})"


def overlap_lines(groups: Sequence[MethodGroup]) -> Iterator[str]:
    """The overlaps in words: a line per pair of methods, and under it an indented one per kind of change."""
    for pair in (pair for group in groups for pair in group.pairs):
        yield f"{pair.first.model} on {pair.first.data_set}, {_at_rate(pair.first)} and {_at_rate(pair.second)}:"
        if pair.reason is not None:
            yield f"  {pair.reason}"
        for at, found in (("any iteration", pair.any), ("the final iteration", pair.final)):
            if found is not None:
                yield f"  changed at {at}, of {plural(found.num_counted, 'problem')}:"
                yield (
                    f"    {found.num_both} by both, {found.num_first_only} by the first only, "
                    f"{found.num_second_only} by the second only, {found.num_neither} by neither"
                )
                yield f"    Jaccard index {_valued(found.jaccard, decimal)}"
                yield f"    same verdict, %: {_valued(found.same, percent)}"


def _at_rate(panel: Panel) -> str:
    cell = panel.chosen_cell
    return panel.method_name + (f" at {rate(cell.lr)}" if cell else "")


def _valued(estimate: Estimate, form: Callable[[Any], str]) -> str:
    if estimate.value is None:
        return f"undefined: {estimate.reason}"
    interval = "no interval" if estimate.low is None else f"95% interval {form(estimate.low)} to {form(estimate.high)}"
    return f"{form(estimate.value)} ({interval})"
