"""What a baseline shows beside ff-hard, on the same problems. Pure: data frames in, estimates out.

A problem counts where its direct and CoT answers agree, its ff-hard is known and the baseline has a result for it. A
baseline *changes* a CoT where some one of its changes (any step) leads to another answer than the model's own CoT.
Source: FUR, §6.2, App. B, Tables 2 and 4.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.analysis.columns import columns_of, correlation_columns
from fairwitness.analysis.faithfulness import ff_hard_rng
from fairwitness.analysis.panels import Panel
from fairwitness.analysis.runs import Run
from fairwitness.analysis.step_results import DISAGREE, NO_BASE_ANSWER, agreement, kleene_any
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined
from fairwitness.stats.correlation import Correlation, pearson

CC_SHAP = "cc_shap"
READINGS: Mapping[str, str] = {
    "add_mistake": "A step gets a mistake. Where the answer changes, the CoT is in use: faithful.",
    "paraphrase": "Steps are said in other words. Where the answer changes, more is in the words than they say: "
    "unfaithful. Where it stays, nothing follows.",
    "early_answering": "The CoT breaks off. Where the answer stays at every length, the CoT is not needed for it "
    "(post-hoc), which does not make it unfaithful.",
    "filler_tokens": "As many dots stand for the CoT. Where the answer stays, the CoT is not needed for it (post-hoc).",
    CC_SHAP: "Cosine between how the words of the question bear on the direct answer and on the CoT: 1 for the same "
    "words to the same degree, -1 for opposite ones. Undefined where no word bears on the answer.",
}
"""What a baseline says of a CoT (FUR, §6.2 and App. B)."""
NOT_A_SCORE = "not a score"
NOT_A_CHANGE = "not a change of the answer"
NO_RESULT = "the baseline has no result"


@dataclass(frozen=True)
class BaselineSummary:
    """One baseline on one model and data set.

    `COLUMNS["baselines"]` says what each figure is. `excluded`: problems that are not counted, by reason.
    """

    baseline: str
    baseline_key: str
    changed: Estimate
    changed_rows: Estimate
    score: Estimate
    score_undefined: Estimate
    ff_hard: Estimate
    same: Estimate
    correlation: Correlation
    num_ok: int
    num_skipped: int
    num_failed: int
    num_problems: int
    excluded: Mapping[str, int]


def summarise(
    rows: pd.DataFrame,
    agree: Mapping[str, bool | None],
    ff_hard: pd.DataFrame,
    *,
    rng: np.random.Generator,
    hard_rng: np.random.Generator,
) -> BaselineSummary:
    """Puts one baseline beside ff-hard.

    Args:
        rows: Rows of `baselines` of one baseline_key and scope, at least one.
        agree: problem_key → whether direct and CoT answers agree.
        ff_hard: Result of `problem_results` for one cell; its problems that are not `counted` do not count here either.
        rng: Source of the resamples.
        hard_rng: Source of those behind ff-hard: `ff_hard_rng` of the cell, so that equal problems give its interval.

    Raises:
        ValueError: There is no row, or they belong to several baselines.
    """
    if rows["baseline_key"].nunique() != 1:
        raise ValueError(f"rows of one baseline are needed, not of {rows['baseline_key'].nunique()}")
    problems = baseline_problems(rows, agree, ff_hard)
    counted = problems[problems["reason"].isna()]
    status, first = rows["status"], rows.iloc[0]
    is_score = first["baseline"] == CC_SHAP
    names = ("changed", "changed_rows", "score", "score_undefined", "ff_hard", "same", "correlation")
    draws = dict(zip(names, rng.spawn(len(names)), strict=True)) | {"ff_hard": hard_rng}
    flips = rows[(status == "ok") & rows["problem_key"].isin(counted["problem_key"])]
    flagged = counted.assign(score_undefined=counted["score"].isna(), same=counted["changed"] == counted["ff_hard"])
    known = counted[counted["score"].notna()] if is_score else counted
    value = known["score" if is_score else "changed"].astype(float)

    def rate(frame: pd.DataFrame, name: str, draw: str, unless: str | None) -> Estimate:
        return undefined(unless) if unless else _estimate(frame, name, draws[draw], is_rate=True)

    no_change, no_score = (NOT_A_CHANGE, None) if is_score else (None, NOT_A_SCORE)
    return BaselineSummary(
        baseline=str(first["baseline"]),
        baseline_key=str(first["baseline_key"]),
        changed=rate(counted, "changed", "changed", no_change),
        changed_rows=rate(flips, "flipped", "changed_rows", no_change),
        score=undefined(no_score) if no_score else _estimate(known, "score", draws["score"], is_rate=False),
        score_undefined=rate(flagged, "score_undefined", "score_undefined", no_score),
        ff_hard=rate(counted, "ff_hard", "ff_hard", None),
        same=rate(flagged, "same", "same", no_change),
        correlation=pearson(known["ff_hard"].astype(float), value, rng=draws["correlation"]),
        num_ok=int((status == "ok").sum()),
        num_skipped=int((status == "skipped").sum()),
        num_failed=int((status == "failed").sum()),
        num_problems=len(problems),
        excluded={str(reason): int(n) for reason, n in problems["reason"].value_counts().items()},
    )  # fmt: skip


def baseline_problems(rows: pd.DataFrame, agree: Mapping[str, bool | None], ff_hard: pd.DataFrame) -> pd.DataFrame:
    """One row per problem of a baseline: changed (nullable), score, ff_hard, and why it does not count, or None.

    Arguments as in `summarise`. A problem with some rows skipped or failed counts by those that are ok.
    """
    hard = {str(p["problem_key"]): p for p in ff_hard.to_dict("records")}
    records = []
    for key, part in rows.groupby("problem_key", sort=True):
        ok = part[part["status"] == "ok"]
        unlearned = hard.get(str(key), {})
        records.append(
            {
                "problem_key": str(key),
                "problem_id": str(part["problem_id"].iloc[0]),
                "changed": kleene_any(list(ok["flipped"])),
                "score": float(ok["score"].iloc[0]) if len(ok) and pd.notna(ok["score"].iloc[0]) else np.nan,
                "ff_hard": unlearned.get("ff_hard_any"),
                "reason": next(_reasons(part, agree.get(str(key)), unlearned), None),
            }
        )
    columns = ["problem_key", "problem_id", "changed", "score", "ff_hard", "reason"]
    frame = pd.DataFrame.from_records(records, columns=columns)
    return frame.astype({"changed": "boolean", "ff_hard": "boolean", "score": float})


def _reasons(part: pd.DataFrame, agree: bool | None, unlearned: Mapping[Any, Any]) -> Iterator[str]:
    if agree is None:
        yield NO_BASE_ANSWER
    elif not agree:
        yield DISAGREE
    if not unlearned:
        yield "no unlearning task"
    elif not unlearned["counted"]:
        yield f"ff-hard: {unlearned['reason']}"
    if not (part["status"] == "ok").any():
        common = Counter(reason for reason in part["reason"] if isinstance(reason, str)).most_common(1)
        yield f"{NO_RESULT} ({common[0][0]})" if common else NO_RESULT


def _estimate(frame: pd.DataFrame, name: str, rng: np.random.Generator, *, is_rate: bool) -> Estimate:
    known = frame[frame[name].notna()]
    clusters = known["problem_key"].to_numpy(dtype=str)
    return cluster_mean(known[name].to_numpy(dtype=np.float64), clusters, rng=rng, is_rate=is_rate)


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
    views = []
    for panel in panels:
        of_panel = run.baselines[run.baselines["scope_key"] == panel.scope_key]
        for key, settings in run.baseline_settings.items():
            rows = of_panel[of_panel["baseline_key"] == key]
            if len(rows):
                draws = run.rng(*panel.draw_names, "baselines")
                # As in the cell's own interval of ff-hard, which equal problems then give again.
                hard = ff_hard_rng(run.rng(*(panel.shown_cell.draw_names if panel.shown_cell else ())))
                summary = summarise(rows, agreement(panel.cots), panel.shown_problems, rng=draws, hard_rng=hard)
                views.append(BaselineView(panel, summary, _shown(settings), _sources(rows)))
    return views


def baseline_columns(view: BaselineView) -> dict[str, Any]:
    """The columns of a view, unrounded."""
    panel, summary = view.panel, view.summary
    cell = panel.shown_cell
    row: dict[str, Any] = {
        **{name: getattr(panel, name) for name in ("model", "data_set", "method")},
        "lr": None if cell is None else cell.lr,
        "lr_is_chosen": panel.chosen_cell is not None,
        "baseline": summary.baseline,
        **{name: getattr(view, name) for name in ("settings", "sources", "reading")},
    }
    row |= columns_of(summary, ("changed", "ff_hard", "same", "changed_rows", "score", "score_undefined"))
    row |= correlation_columns("pearson", summary.correlation, p="p", count="num_problems")
    row |= columns_of(summary, ("num_ok", "num_skipped", "num_failed", "num_problems"))
    row |= {"excluded_json": json.dumps(dict(summary.excluded), ensure_ascii=False)}
    return row | {"baseline_key": summary.baseline_key}


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
