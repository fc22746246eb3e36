"""The baselines of a run beside its ff-hard: one table, for the page, for CSV and for the terminal."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairwitness.fur.baselines.summary import CC_SHAP, READINGS, BaselineSummary, summarise
from fairwitness.fur.faithfulness import ChosenRate, ff_hard_rng
from fairwitness.report.data import Run, load_run
from fairwitness.report.findings import with_interval
from fairwitness.report.format import decimal, rate
from fairwitness.report.panels import Panel, agreement, build_panels, rng_for
from fairwitness.report.tables import estimate_columns

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
    return pd.DataFrame([_row(view) for view in views])


def baseline_lines(run_dir: Path) -> tuple[str, ...]:
    """The table in sentences, a line per model, data set and baseline.

    Raises:
        StoreError: There is no run, or it cannot be read.
    """
    run = load_run(run_dir)
    return tuple(map(_line, baseline_views(run, build_panels(run))))


def _row(view: BaselineView) -> dict[str, Any]:
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
