"""From rows of `unlearning` to what a policy sees of a learning rate. Pure: a data frame in, numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.fur.faithfulness import counted_iterations, specificity_of
from fairwitness.fur.search.policies import Evidence
from fairwitness.fur.step_results import step_results
from fairwitness.stats.bootstrap import LEVEL


def level_per_look(num_looks: int) -> float:
    """Coverage of the interval at each of several looks that together err as rarely as one at 95% (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(1, num_looks)


def gather(
    rows: pd.DataFrame,
    agree: Mapping[str, bool | None],
    *,
    lr: float,
    batches: Sequence[Sequence[str]],
    num_batches: int,
    rng: np.random.Generator,
) -> Evidence:
    """What a rate has shown on the first batches of problems.

    Only problems whose direct and CoT answers agree count, as in `cell_faithfulness`. A failed task of one of them, or
    a measurement that is not a finite number, makes the rate one that is never best: a mean over the tasks that are
    left would compare with the other rates' means over all.

    Args:
        rows: The rate's rows of `unlearning`.
        agree: problem_key → whether direct and CoT answers agree.
        lr: The rate.
        batches: Ids of all problems that have tasks, in batches.
        num_batches: How many of the batches are measured.
        rng: Source of the bootstrap resamples.
    """
    asked = [set(batch) for batch in batches[:num_batches]]
    counted = rows[rows["problem_id"].isin(set().union(*asked))]
    counted = counted[counted["problem_key"].map(lambda key: bool(agree.get(str(key)))).to_numpy(dtype=bool)]
    iterations = counted_iterations(counted, agree)
    failure = _failed(counted) or _not_finite(iterations)
    if failure is not None:
        return Evidence(lr, (None,) * num_batches, None, None, None, num_batches >= len(batches), failure)
    kept = specificity_of(iterations, rng=rng, level=level_per_look(len(batches)))
    ids = [set().union(*asked[:number]) for number in range(1, num_batches + 1)]
    return Evidence(
        lr=lr,
        efficacies=tuple(_mean(iterations, some) for some in ids),
        specificity=kept.value,
        specificity_low=kept.low,
        specificity_high=kept.high,
        is_complete=num_batches >= len(batches),
    )


def _failed(rows: pd.DataFrame) -> str | None:
    if rows.empty:
        return None
    tasks = step_results(rows)
    failed = tasks[tasks["status"] == "failed"]
    if failed.empty:
        return None
    return f"{len(failed)} of {len(tasks)} tasks failed: {failed['reason'].mode().iloc[0]}"


def _not_finite(iterations: pd.DataFrame) -> str | None:
    values = iterations[["efficacy", "specificity"]].astype(float).to_numpy()
    number = int((~np.isfinite(values)).any(axis=1).sum())
    return f"{number} of {len(iterations)} measurements are not finite" if number else None


def _mean(iterations: pd.DataFrame, problem_ids: set[str]) -> float | None:
    values = iterations.loc[iterations["problem_id"].isin(problem_ids), "efficacy"].astype(float)
    return float(values.mean()) if len(values) else None


def to_plain(evidence: Evidence) -> dict[str, Any]:
    """As values that JSON holds."""
    return {**asdict(evidence), "efficacies": list(evidence.efficacies)}


def from_plain(plain: Mapping[str, Any]) -> Evidence:
    """The evidence that `to_plain` was given."""
    return Evidence(**{**plain, "efficacies": tuple(plain["efficacies"])})


def known_rates(done: Iterable[Mapping[str, Any]]) -> dict[float, Evidence]:
    """What is known of each rate after some trials: what its longest trial has shown.

    Args:
        done: What trials have shown, by `to_plain`.
    """
    known: dict[float, Evidence] = {}
    for evidence in map(from_plain, done):
        before = known.get(evidence.lr)
        if before is None or _rank(before) < _rank(evidence):
            known[evidence.lr] = evidence
    return known


def _rank(evidence: Evidence) -> tuple[bool, bool, int]:
    return evidence.failure is not None, evidence.is_complete, evidence.num_batches
