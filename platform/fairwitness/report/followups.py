"""How ratings by people go with ff-soft, for the page and the table; the figures are those of `study show`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairwitness.analysis.baselines import CC_SHAP, READINGS, BaselineSummary, summarise
from fairwitness.analysis.capability import CellCapability, cell_capabilities
from fairwitness.analysis.faithfulness import ChosenRate, ff_hard_rng
from fairwitness.analysis.judgements import VERDICTS, JudgedCell, judged_cells
from fairwitness.analysis.panels import Panel, agreement, build_panels, rng_for
from fairwitness.analysis.ratings import RatingSummary
from fairwitness.analysis.runs import Run, find_setting, load_run
from fairwitness.judges.agreement import PairAgreement, pair_agreements
from fairwitness.records.store import Store
from fairwitness.report.findings import with_interval
from fairwitness.report.format import decimal, percent, plural, rate, signed
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate
from fairwitness.stats.correlation import Correlation
from fairwitness.text.numbers import method_name

_ESTIMATES = ("changed", "ff_hard", "same", "changed_rows", "score", "score_undefined")


@dataclass(frozen=True)
class BaselineView:
    """One line of the table.

    Attributes:
        panel: Model and data set, with the cell that ff-hard is of.
        summary: The figures.
        settings: The baseline's settings, for people; empty where all are defaults of their kind.
        sources: Where its texts are from.
    """

    panel: Panel
    summary: BaselineSummary
    settings: str
    sources: str

    @property
    def name(self) -> str:
        """The baseline's name for people."""
        return "CC-SHAP" if self.summary.baseline == CC_SHAP else self.summary.baseline.replace("_", " ")

    @property
    def excluded(self) -> str:
        """The problems that do not count, by reason; empty where all do."""
        return "; ".join(f"{number} ({reason})" for reason, number in self.summary.excluded.items())

    @property
    def reading(self) -> str:
        """What the baseline says of a CoT."""
        return READINGS[self.summary.baseline]


def baseline_views(run: Run, panels: Sequence[Panel]) -> list[BaselineView]:
    """A view per panel and baseline that has rows, in the order of the panels and of the job's settings."""
    rng = functools.partial(rng_for, run)
    views = []
    for panel in panels:
        of_panel = run.baselines[run.baselines["scope_key"] == panel.scope_key]
        for key, settings in run.baseline_settings.items():
            rows = of_panel[of_panel["baseline_key"] == key]
            if len(rows):
                draws = rng(panel.scope_key, panel.method, "baselines")
                # As in the cell's own interval of ff-hard, which equal problems then give again.
                hard = ff_hard_rng(rng(panel.shown_cell.cell_key if panel.shown_cell else ""))
                summary = summarise(rows, agreement(panel.cots), panel.shown_problems, rng=draws, hard_rng=hard)
                views.append(BaselineView(panel, summary, _shown(settings), _sources(rows)))
    return views


def baselines_table(views: Sequence[BaselineView]) -> pd.DataFrame:
    """The views with all figures, unrounded."""
    return pd.DataFrame([_baseline_row(view) for view in views])


def baseline_lines(run_dir: Path) -> tuple[str, ...]:
    """The table in sentences, a line per model, data set and baseline.

    Raises:
        StoreError: There is no run, or it cannot be read.
    """
    run = load_run(run_dir)
    return tuple(map(_line, baseline_views(run, build_panels(run))))


def _baseline_row(view: BaselineView) -> dict[str, Any]:
    panel, summary = view.panel, view.summary
    cell = panel.shown_cell
    found: dict[str, Any] = {
        "model": panel.model,
        "data_set": panel.data_set,
        "method": panel.method,
        "lr": None if cell is None else cell.lr,
        "lr_is_chosen": isinstance(panel.choice, ChosenRate),
        "baseline": summary.baseline,
        "settings": view.settings,
        "sources": view.sources,
        "reading": view.reading,
    }
    for name in _ESTIMATES:
        found |= estimate_columns(name, getattr(summary, name))
    correlation = summary.correlation
    found |= {
        "pearson": correlation.value,
        "pearson_low": correlation.low,
        "pearson_high": correlation.high,
        "pearson_p": correlation.p_value,
        "pearson_num_problems": correlation.num_points,
        "pearson_reason": correlation.reason,
        "num_ok": summary.num_ok,
        "num_skipped": summary.num_skipped,
        "num_failed": summary.num_failed,
        "num_problems": summary.num_problems,
        "excluded_json": json.dumps(dict(summary.excluded), ensure_ascii=False),
        "baseline_key": summary.baseline_key,
    }
    return found


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


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False) if _is_blank(value) else value}"
        for name, value in settings.items()
        if name not in ("kind", "texts")
    )


def _is_blank(value: Any) -> bool:
    """Whether a text would not be seen as it is: it begins or ends with white space, or is empty."""
    return isinstance(value, str) and value != (value.strip() or " ")


def _sources(rows: pd.DataFrame) -> str:
    # A file's lines are one source.
    return "; ".join(sorted({re.sub(r":\d+$", "", source) for source in rows["source"].dropna()}))


def run_capabilities(run: Run) -> list[CellCapability]:
    """What was measured of general capability on a run, at every rate; empty where nothing was."""
    seed = find_setting(run.config, "seed")
    return cell_capabilities(run.capability, seed=seed if isinstance(seed, int) and seed >= 0 else 0)


def capability_table(cells: Sequence[CellCapability]) -> pd.DataFrame:
    """A row per cell and set of questions: accuracies, change and share of changed answers with intervals, counts."""
    return pd.DataFrame([_capability_row(cell) for cell in cells])


def capability_lines(cells: Sequence[CellCapability]) -> Iterator[str]:
    """A sentence per cell."""
    for cell in cells:
        method = "" if cell.method == "ff2" else f" ({method_name(cell.method, cell.lora_rank)})"
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


def _capability_row(cell: CellCapability) -> dict[str, Any]:
    names = ("model", "data_set", "method", "lora_rank", "lr", "capability_set", "scope_key", "cell_key")
    row: dict[str, Any] = {name: getattr(cell, name) for name in names}
    row |= {name: getattr(cell, name) for name in ("num_cots", "num_steps", "num_failed", "num_questions")}
    row |= {"num_questions_left_out": sum(cell.left_out.values()), "worst_change": cell.worst_change}
    for name in ("before", "after", "change", "changed"):
        row |= estimate_columns(name, getattr(cell, name))
    return row


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


def load_judged(run: Run, store: Store) -> Judged | None:
    """The judgements of the run's cells; None where there are none.

    Raises:
        StoreError: The store cannot be read.
    """
    cell_keys = run.info["cell_keys"]
    seed = find_setting(run.config, "seed") or 0
    cells = judged_cells(store, seed=seed, cell_keys=cell_keys)
    if not cells:
        return None
    rows = store.read("judgements").to_pandas()
    within = rows if cell_keys is None else rows[rows["cell_key"].isin(list(cell_keys))]
    return Judged(tuple(cells), tuple(pair_agreements(within, seed=seed)))


def judgements_table(cells: Sequence[JudgedCell]) -> pd.DataFrame:
    """A row per judge and cell."""
    return pd.DataFrame([_judged_row(cell) for cell in cells])


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


def _judged_row(cell: JudgedCell) -> dict[str, Any]:
    names = ("model", "data_set", "method", "lora_rank", "lr", "cell_key", "judge", "judge_key")
    numbers = ("num_judged", "num_skipped", "num_failed", "num_unparsable")
    usage = ("num_prompt_tokens", "num_completion_tokens", "num_from_cache", "cost")
    return (
        {name: getattr(cell, name) for name in (*names, *numbers)}
        | {f"num_{verdict}": cell.verdicts[verdict] for verdict in VERDICTS}
        | estimate_columns("different", cell.different)
        | estimate_columns("different_changed", cell.different_changed)
        | {name: getattr(cell, name) for name in usage}
        | {"reasons": "; ".join(f"{number} × {reason}" for reason, number in cell.reasons.items())}
    )


def step_study_table(summaries: Sequence[RatingSummary]) -> pd.DataFrame:
    """A row per model and data set, and one for all together (without names) where there are several."""
    return pd.DataFrame([_rating_row(summary) for summary in summaries])


def _rating_row(summary: RatingSummary) -> dict[str, Any]:
    names = ("model", "data_set", "num_raters", "num_ratings", "num_steps", "num_undefined")
    row = {name: getattr(summary, name) for name in names}
    row |= _columns("pearson", summary.pearson) | _columns("spearman", summary.spearman)
    for name, mean in summary.means.items():
        row |= estimate_columns(f"mean_{name}", mean)
    return row


def _columns(name: str, found: Correlation) -> dict[str, Any]:
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_p_value": found.p_value,
        f"{name}_num_steps": found.num_points,
        f"{name}_reason": found.reason,
    }
