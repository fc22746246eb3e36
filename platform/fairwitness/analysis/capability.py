"""General capability of each cell: accuracy before and after unlearning, with intervals (FUR, Table 1). Pure.

Frames with the columns of the table `capability` in, estimates out. Accuracies resample questions: how well would the
model do on other questions of this kind? The change and the share of changed answers resample CoTs: both compare
answers to the very same questions, so what is left to chance is which CoTs were drawn.

Shape legend: S unlearned steps, Q questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairwitness.analysis.identity import CellId, cell_id
from fairwitness.problems.draws import item_rng
from fairwitness.stats.bootstrap import Estimate, Floats, cluster_codes, cluster_ratio

NOTHING_CHANGED = "no answer changed, so resampling has nothing to draw from"


@dataclass(frozen=True)
class CellCapability(CellId):
    """General capability of one cell on one set of questions.

    `COLUMNS["capability"]` says what each figure is; `left_out`: for every reason, how many questions are not asked.
    """

    cell_key: str
    scope_key: str
    capability_set: str
    before: Estimate
    after: Estimate
    change: Estimate
    changed: Estimate
    worst_change: float
    num_cots: int
    num_steps: int
    num_failed: int
    num_questions: int
    left_out: Mapping[str, int]


def cell_capabilities(rows: pd.DataFrame, *, seed: int) -> list[CellCapability]:
    """Aggregates rows of `capability`, by model, data set, method, rank, rate and set of questions.

    A step counts as one measurement, so a CoT with more steps weighs more, as in the paper. Cells without a measured
    step are left out.

    Args:
        rows: Rows of one or several runs' `capability`.
        seed: Seed of the run, for the resamples.
    """
    found = []
    of_tasks = rows[rows["task_key"].notna()]
    for (_, revision), part in of_tasks.groupby(["cell_key", "capability_revision"], sort=True):
        measured = part[part["status"] == "ok"].sort_values("key")
        if len(measured):
            same = rows[(rows["capability_revision"] == revision) & (rows["scope_key"] == part.iloc[0]["scope_key"])]
            reasons = same.loc[same["question_id"].notna(), "reason"]
            first = part.iloc[0]
            rng = item_rng(seed, *cell_id(first).draw_names, str(first["capability_set"]), "capability")
            # The base model's accuracy is that of every method and rate.
            named = (str(first[name]) for name in ("model", "data_set", "capability_set"))
            base_rng = item_rng(seed, *named, "capability")
            found.append(_cell(measured, int((part["status"] == "failed").sum()), Counter(reasons), rng, base_rng))
    return sorted(found, key=lambda cell: (cell.order, cell.capability_set))


def _cell(
    measured: pd.DataFrame,
    num_failed: int,
    left_out: Mapping[str, int],
    rng: np.random.Generator,
    base_rng: np.random.Generator,
) -> CellCapability:
    first = measured.iloc[0]
    gold_Q = np.asarray(first["gold_letters"], dtype=str)
    before_Q = np.asarray(first["letters_before"], dtype=str) == gold_Q
    after_SQ = _letters(measured["letters_after"]) == gold_Q
    differ_SQ = _letters(measured["letters_after"]) != _letters(measured["letters_before"])
    num_steps, num_questions = after_SQ.shape
    change_S = after_SQ.mean(1) - before_Q.mean()
    cots = measured["problem_key"].to_numpy(dtype=str)
    streams = rng.spawn(3)
    steps_Q = np.full(num_questions, float(num_steps))
    return CellCapability(
        **vars(cell_id(first)),
        cell_key=str(first["cell_key"]),
        scope_key=str(first["scope_key"]),
        capability_set=str(first["capability_set"]),
        before=cluster_ratio(before_Q.astype(float), np.ones(num_questions), rng=base_rng, is_rate=True),
        after=cluster_ratio(after_SQ.sum(0).astype(float), steps_Q, rng=streams[0], is_rate=True),
        change=_change(change_S, cots, streams[1], is_nothing=not differ_SQ.any()),
        changed=_over_cots(differ_SQ.mean(1), cots, streams[2], is_rate=True),
        worst_change=float(change_S.min()),
        num_cots=len(np.unique(cots)),
        num_steps=num_steps,
        num_failed=num_failed,
        num_questions=num_questions,
        left_out=dict(left_out),
    )


def _letters(column: pd.Series[Any]) -> NDArray[np.str_]:
    return np.stack([np.asarray(letters, dtype=str) for letters in column])


def _change(change_S: Floats, cots_S: NDArray[Any], rng: np.random.Generator, *, is_nothing: bool) -> Estimate:
    if is_nothing:
        return Estimate(0.0, None, None, 0.0, float(len(change_S)), len(np.unique(cots_S)), NOTHING_CHANGED)
    return _over_cots(change_S, cots_S, rng)


def _over_cots(values_S: Floats, cots_S: NDArray[Any], rng: np.random.Generator, *, is_rate: bool = False) -> Estimate:
    codes = cluster_codes(cots_S)
    sums, sizes = np.bincount(codes, weights=values_S), np.bincount(codes).astype(float)
    return cluster_ratio(sums, sizes, rng=rng, is_rate=is_rate)
