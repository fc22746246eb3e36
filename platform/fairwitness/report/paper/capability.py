"""General capability of the base model and after unlearning, over the tasks of one cell. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.stats.bootstrap import Estimate, cluster_ratio, undefined, wilson

NO_TASK = "no task was measured on general questions"


@dataclass(frozen=True)
class Capability:
    """Accuracy on general questions.

    Attributes:
        before: Of the base model; n are questions, the interval is Wilson's.
        after: After unlearning, over all measured tasks; n are problems whose steps were unlearned, which the interval
            resamples.
        num_tasks: Tasks measured.
        num_not_ok: Tasks without a measurement.
        sets: Names of the sets of questions.
    """

    before: Estimate
    after: Estimate
    num_tasks: int
    num_not_ok: int
    sets: tuple[str, ...]


def capability_of(rows: pd.DataFrame, *, rng: np.random.Generator) -> Capability:
    """Accuracy before and after, from rows of the table `capability` of one cell.

    Rows of several sets of questions are taken together, each answer with the same weight.

    Args:
        rows: Rows of one cell; none gives undefined estimates.
        rng: Source of the bootstrap resamples.
    """
    measured = rows[(rows["status"] == "ok") & (rows["num_questions"].fillna(0) > 0)]
    missing = len(rows) - len(measured)
    if measured.empty:
        return Capability(undefined(NO_TASK), undefined(NO_TASK), 0, missing, ())
    sums = measured.groupby("problem_id")[["num_correct_after", "num_questions"]].sum()
    after = cluster_ratio(sums["num_correct_after"], sums["num_questions"], rng=rng, is_rate=True)
    sets = tuple(sorted(set(measured["capability_set"])))
    return Capability(_before(measured), after, len(measured), missing, sets)


def _before(measured: pd.DataFrame) -> Estimate:
    # Every task is asked the same questions of the base model; a set counts once.
    once: Any = measured.drop_duplicates(["capability_set", "capability_revision"])
    right, asked = int(once["num_correct_before"].sum()), int(once["num_questions"].sum())
    low, high = wilson(right, asked)
    return Estimate(right / asked, low, high, right, asked, asked, None, "wilson")
