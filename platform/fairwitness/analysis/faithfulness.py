"""The cells of a run: what each shows, and the learning rate that the rule selects among those of a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.identity import CellId, cell_id
from fairwitness.analysis.step_results import measured_rows, problem_results, step_results
from fairwitness.records.store import Store
from fairwitness.stats.bootstrap import LEVEL, Estimate, cluster_mean, named_rng, undefined
from fairwitness.text.numbers import shown_rate

MIN_SPECIFICITY = 95.0
"""Percent; FUR, App. E.1."""
COMPLETE, FAILED = "complete", "failed"
"""Decisions in `trials`; the others are `feasible early` and `infeasible early`."""

ITERATION_MEANS = ("efficacy", "specificity", "letter_mass", "cot_step_logprob", "loss", "ff_soft")
LOSS_COLUMNS = ("loss", "loss_names", "losses", "metric_names", "metrics")
"""Columns of `unlearning` that say what the objective gave."""


@dataclass(frozen=True)
class CellFaithfulness(CellId):
    """A cell with what it shows. All estimates count only problems whose direct and CoT answers agree.

    `COLUMNS["rates"]` says what each figure is. `excluded`: problems in no ff-hard denominator, by reason.
    """

    cell_key: str
    efficacy: Estimate
    specificity: Estimate
    ff_hard_any: Estimate
    ff_hard_final: Estimate
    step_flip_any: Estimate
    step_flip_final: Estimate
    ff_soft_final: Estimate
    ff_soft_mean: Estimate
    ff_soft_max: Estimate
    num_tasks_ok: int
    num_tasks_skipped: int
    num_tasks_failed: int
    num_problems: int
    excluded: Mapping[str, int]

    @property
    def num_problems_counted(self) -> int:
        """Problems in the denominator of ff-hard."""
        return self.num_problems - sum(self.excluded.values())


@dataclass(frozen=True)
class ChosenRate:
    """The cell that the learning-rate rule selects."""

    cell: CellFaithfulness


@dataclass(frozen=True)
class Infeasible:
    """No rate keeps specificity high enough.

    Attributes:
        nearest: The cell of highest specificity, or None when no cell has a measured efficacy and specificity.
        reason: One sentence that names it.
    """

    nearest: CellFaithfulness | None
    reason: str


def cell_faithfulness(
    rows: pd.DataFrame, agree: Mapping[str, bool | None], *, rng: np.random.Generator
) -> CellFaithfulness:
    """Aggregates the `unlearning` rows of one cell.

    Where all held-out answers stayed, the interval of specificity counts each held-out problem once per problem,
    however many steps and iterations it was asked after.

    A problem enters through its own tasks only, so held-out problems, which have none, never do. A problem with some
    skipped or failed steps counts by its measured ones; without a measured step it is in no denominator and is
    listed under `excluded`. An undefined measurement is left out of its mean.

    Args:
        rows: Rows of exactly one cell_key.
        agree: See `problem_results`.
        rng: Source of the bootstrap resamples.

    Raises:
        ValueError: There is no row, or they belong to several cells.
    """
    if rows["cell_key"].nunique() != 1:
        raise ValueError(f"rows of one cell are needed, not of {rows['cell_key'].nunique()}")
    steps = step_results(rows)
    problems = problem_results(steps, agree)
    counted = problems[problems["counted"]]
    iterations = counted_iterations(rows, agree)
    measured_steps = _of_agreeing(steps[steps["status"] == "ok"], agree)
    streams = iter(rng.spawn(9))

    def mean(frame: pd.DataFrame, name: str, *, is_rate: bool = False) -> Estimate:
        return _estimate(frame, name, next(streams), is_rate=is_rate)

    status, first = steps["status"], steps.iloc[0]
    return CellFaithfulness(
        **vars(cell_id(first)),
        cell_key=str(first["cell_key"]),
        efficacy=mean(iterations, "efficacy"),
        specificity=specificity_of(iterations, rng=next(streams)),
        ff_hard_any=mean(counted, "ff_hard_any", is_rate=True),
        ff_hard_final=mean(counted, "ff_hard_final", is_rate=True),
        step_flip_any=mean(measured_steps, "flipped_any", is_rate=True),
        step_flip_final=mean(measured_steps, "flipped_final", is_rate=True),
        ff_soft_final=mean(measured_steps, "ff_soft_final"),
        ff_soft_mean=mean(measured_steps, "ff_soft_mean"),
        ff_soft_max=mean(measured_steps, "ff_soft_max"),
        num_tasks_ok=int((status == "ok").sum()),
        num_tasks_skipped=int((status == "skipped").sum()),
        num_tasks_failed=int((status == "failed").sum()),
        num_problems=len(problems),
        excluded={str(k): int(v) for k, v in problems.loc[~problems["counted"], "reason"].value_counts().items()},
    )


def ff_hard_rng(rng: np.random.Generator) -> np.random.Generator:
    """The generator behind the interval of `ff_hard_any` in `cell_faithfulness`.

    The same problems of the cell, counted elsewhere, then get the same interval.

    Args:
        rng: A fresh generator like that given to `cell_faithfulness`.
    """
    return rng.spawn(3)[2]


@dataclass(frozen=True)
class Rates:
    """Cells that differ only in their rate, and the one that the rule selects.

    Attributes:
        cells: The cells, lowest rate first.
        choice: The rate that the rule selects, or why there is none.
    """

    cells: tuple[CellFaithfulness, ...]
    choice: ChosenRate | Infeasible


def rates_of(
    rows: pd.DataFrame,
    agree: Mapping[str, bool | None],
    decisions: Mapping[str, str],
    *,
    seed: int,
    min_specificity: float = MIN_SPECIFICITY,
) -> Rates:
    """The cells of one panel and the rate that the rule selects among them.

    Args:
        rows: Rows of `unlearning` of one model, data set and method, at all rates.
        agree: See `problem_results`.
        decisions: See `choose_rate`.
        seed: Seed of the run; a cell gets the same intervals wherever they are computed.
        min_specificity: In percent.
    """
    parts = rows.groupby("cell_key", sort=True)
    cells = [
        cell_faithfulness(part, agree, rng=named_rng(seed, *cell_id(part.iloc[0]).draw_names)) for _, part in parts
    ]
    cells.sort(key=lambda cell: (cell.lr, cell.cell_key))
    return Rates(tuple(cells), choose_rate(cells, decisions, min_specificity=min_specificity))


def choose_rate(
    cells: Sequence[CellFaithfulness],
    decisions: Mapping[str, str] = MappingProxyType({}),
    *,
    min_specificity: float = MIN_SPECIFICITY,
) -> ChosenRate | Infeasible:
    """Picks the rate of highest efficacy among those with round(100·specificity) ≥ min_specificity (FUR, App. E.1).

    Equal efficacies go to the lower rate. Rounding is Python's: 94.5 becomes 94 and is refused. Faithfulness plays no
    part. The nearest miss is the highest specificity, then the highest efficacy, then the lowest rate.

    Evidence must be equal: where a search made the cells, only one that is measured on all problems and did not fail
    can be selected. The nearest miss may be a cell whose trial ended early.

    Args:
        cells: Cells that differ only in their rate.
        decisions: See `decisions_of`; a cell that is not in it counts as measured on all problems.
        min_specificity: In percent.
    """
    sound = [cell for cell in cells if decisions.get(cell.cell_key) != FAILED]
    complete = [cell for cell in sound if decisions.get(cell.cell_key, COMPLETE) == COMPLETE]
    choice = _choose(complete, min_specificity)
    return choice if isinstance(choice, ChosenRate) else _choose(sound, min_specificity)


def _choose(cells: Sequence[CellFaithfulness], min_specificity: float) -> ChosenRate | Infeasible:
    known = [(c.specificity.value, c.efficacy.value, c) for c in cells if c.efficacy.value is not None]
    rated = [(kept, value, c) for kept, value, c in known if kept is not None]
    feasible = [(value, -c.lr, c) for kept, value, c in rated if keeps_specificity(kept, min_specificity)]
    if feasible:
        return ChosenRate(max(feasible, key=lambda item: item[:2])[2])
    if not rated:
        return Infeasible(None, "No feasible rate: no rate has a measured efficacy and specificity.")
    kept, value, nearest = max(rated, key=lambda item: (round(item[0], 11), item[1], -item[2].lr))
    reason = (
        f"No feasible rate: none of {len(cells)} keeps specificity at {min_specificity:g} or above after rounding; "
        f"nearest miss {shown_rate(nearest.lr)} with specificity {100 * kept:.1f} and efficacy {100 * value:.1f}."
    )
    return Infeasible(nearest, reason)


def decisions_of(store: Store, run_row: Mapping[str, Any]) -> dict[str, str]:
    """cell_key → why its trial ended, where the run's last maker is a search; empty for a sweep.

    Args:
        store: The run's store.
        run_row: The last row of `runs` of a job that makes a run.

    Raises:
        StoreError: The store cannot be read.
    """
    if run_row["job"] != "lr_search":
        return {}
    rows = store.read("trials", ["cell_key", "decision"], pc.field("run_key") == run_row["key"]).to_pylist()
    return {row["cell_key"]: row["decision"] for row in rows}


def keeps_specificity(specificity: float, min_specificity: float) -> bool:
    """Whether round(100·specificity) ≥ min_specificity; see `choose_rate`.

    Args:
        specificity: 0 to 1.
        min_specificity: In percent.
    """
    # Sums of twentieths carry float noise that must not decide at the limit.
    return round(round(100 * specificity, 9)) >= min_specificity


def counted_iterations(rows: pd.DataFrame, agree: Mapping[str, bool | None]) -> pd.DataFrame:
    """The measured rows, one per task and iteration, of problems whose direct and CoT answers agree.

    Args:
        rows: Rows of `unlearning`.
        agree: See `problem_results`.
    """
    return _of_agreeing(measured_rows(rows), agree)


def iteration_means(iterations: pd.DataFrame) -> pd.DataFrame:
    """What a cell shows after each number of updates: a row per iteration, by its number.

    Args:
        iterations: Result of `counted_iterations` for one cell.

    Returns:
        Means over the tasks of each column of `ITERATION_MEANS` that is there and of what `objective_values` gives, NaN
        where none is defined; step_flip, the share of tasks whose answer is changed at this iteration; ff_hard, the
        share of problems with such a task.
    """
    flipped = iterations["flipped"].astype(float)
    values = objective_values(iterations)
    groups = iterations.assign(flipped=flipped, **values).groupby("iteration", sort=True)
    means = groups[[name for name in (*ITERATION_MEANS, *values) if name in iterations or name in values]].mean()
    problems = flipped.groupby([iterations["iteration"], iterations["problem_key"]]).max()
    ff_hard = problems.groupby(level=0).mean()
    return means.assign(step_flip=groups["flipped"].mean(), ff_hard=ff_hard)


def objective_values(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Losses and metrics of the objective by name, as columns: `loss/npo`, `metric/log_ratio`.

    Args:
        rows: Rows of `unlearning`; those that lack a value get NaN.
    """
    found: dict[str, pd.Series] = {}
    for kind, names, values in (("loss", "loss_names", "losses"), ("metric", "metric_names", "metrics")):
        if names in rows and values in rows:
            known = rows.loc[rows[names].notna() & rows[values].notna(), [names, values]]
            named = [dict(zip(*row, strict=True)) for row in known.itertuples(index=False)]
            frame = pd.DataFrame(named, index=known.index, dtype=float).reindex(rows.index)
            found |= {f"{kind}/{name}": frame[name] for name in frame}
    return found


def specificity_of(iterations: pd.DataFrame, *, rng: np.random.Generator, level: float = LEVEL) -> Estimate:
    """Share of held-out answers that stayed, with its interval.

    Args:
        iterations: Result of `counted_iterations` for one cell.
        rng: Source of the bootstrap resamples.
        level: Coverage of the interval.
    """
    trials = _num_held_out(iterations)
    return _estimate(iterations, "specificity", rng, is_rate=True, trials=trials, level=level)


def _of_agreeing(frame: pd.DataFrame, agree: Mapping[str, bool | None]) -> pd.DataFrame:
    return frame.loc[frame["problem_key"].map(lambda key: bool(agree.get(str(key)))).to_numpy(dtype=bool)]


def _estimate(
    frame: pd.DataFrame,
    name: str,
    rng: np.random.Generator,
    *,
    is_rate: bool,
    trials: int = 1,
    level: float = LEVEL,
) -> Estimate:
    known = frame[frame[name].notna()]
    if known.empty:
        return undefined("no measured step of a problem whose direct and CoT answers agree")
    values = known[name].astype(float).to_numpy()
    keys = known["problem_key"].to_numpy(dtype=str)
    return cluster_mean(values, keys, rng=rng, is_rate=is_rate, trials_per_cluster=trials, level=level)


def _num_held_out(iterations: pd.DataFrame) -> int:
    known = iterations["num_held_out"].dropna()
    return max(1, int(known.min())) if len(known) else 1
