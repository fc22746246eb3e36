"""How ratings by people go with ff-soft, for the page and the table; the figures are those of `study show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fairwitness.fur.step_study.summary import RatingSummary
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.correlation import Correlation


def step_study_table(summaries: Sequence[RatingSummary]) -> pd.DataFrame:
    """A row per model and data set, and one for all together (without names) where there are several."""
    return pd.DataFrame([_row(summary) for summary in summaries])


def _row(summary: RatingSummary) -> dict[str, Any]:
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
