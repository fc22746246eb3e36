"""A FUR run in MLflow, from what its store holds: a live job and `fairwitness track` log the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairwitness.analysis.faithfulness import LOSS_COLUMNS, cell_faithfulness, counted_iterations, iteration_means
from fairwitness.analysis.identity import cell_id
from fairwitness.analysis.step_results import TASK_COLUMNS, agreement
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store, one_of
from fairwitness.records.tracker import Tracker, track_stored_run
from fairwitness.stats.bootstrap import named_rng


def track_run(run_path: Path | str, config: TrackingConfig, artifacts: Sequence[Path] | None = None) -> str | None:
    """Logs a run from its store: everything that the job would have logged. Doing it twice changes nothing.

    Args:
        run_path: The run directory.
        config: Where to log.
        artifacts: Files to add; None for the resolved configuration, the report and its tables.

    Returns:
        The id of the parent run; None when tracking is not enabled.

    Raises:
        StoreError: There is no run, it cannot be read, or a job is writing it now.
        FairwitnessError: MLflow cannot be used.
    """
    return track_stored_run(run_path, config, _log_run, artifacts)


def _log_run(tracker: Tracker, run: RunDirectory, row: Mapping[str, Any]) -> None:
    log_cells(tracker, run, row.get("cell_keys") or None)


def log_cells(tracker: Tracker, run: RunDirectory, cell_keys: Sequence[str] | None = None) -> None:
    """Logs cells as the store has them now.

    Raises:
        StoreError: The store cannot be read.
    """
    for cell in summarise_cells(run.store(create=False), cell_keys) if tracker.is_active else ():
        tracker.log_cell(cell.cell_key, cell.params, cell.metrics_by_iteration, cell.totals)


@dataclass(frozen=True)
class CellSummary:
    """One cell as the tracker logs it. What is undefined is left out.

    Attributes:
        cell_key: Key of the cell.
        params: What the cell is: model, data set, method, rank, rate, seed.
        metrics_by_iteration: For every iteration from 1, metric to mean over the measured tasks; see `iteration_means`.
        totals: Metrics of the whole cell: the means over all iterations, ff-hard, ff-soft, counts of tasks.
    """

    cell_key: str
    params: Mapping[str, Any]
    metrics_by_iteration: Mapping[int, Mapping[str, float]]
    totals: Mapping[str, float]


def summarise_cells(store: Store, cell_keys: Sequence[str] | None = None) -> list[CellSummary]:
    """Summaries of cells, in the order of model, data set, method, rank and rate.

    Problems count as in the report; counts of tasks are of all problems.

    Args:
        store: The store of a run.
        cell_keys: The cells wanted; None for all.

    Raises:
        StoreError: The store cannot be read.
    """
    where = None if cell_keys is None else one_of("cell_key", cell_keys)
    rows = store.read("unlearning", _COLUMNS, where).to_pandas()
    cots = store.read("cots", ["scope_key", "problem_key", "agree"]).to_pandas()
    agree = {scope: agreement(part) for scope, part in cots.groupby("scope_key")}
    parts = [part for _, part in rows.groupby("cell_key")]
    return [_summary(part, agree.get(part["scope_key"].iloc[0], {})) for part in sorted(parts, key=_order)]


_COLUMNS = [
    *(*TASK_COLUMNS, "scope_key", "model_revision", "seed", "cot_step_logprob", *LOSS_COLUMNS),
]
_TOTALS = ("efficacy", "specificity", "ff_hard_any", "ff_hard_final", "ff_soft_final")


def _order(cell: pd.DataFrame) -> tuple[Any, ...]:
    return cell_id(cell.iloc[0]).order


def _summary(rows: pd.DataFrame, agree: Mapping[str, bool | None]) -> CellSummary:
    first = rows.iloc[0]
    seed = None if pd.isna(first["seed"]) else int(first["seed"])
    cell = cell_faithfulness(rows, agree, rng=named_rng(seed or 0, str(first["cell_key"])))
    params = cell.columns() | {"model_revision": first["model_revision"], "seed": seed}
    totals: dict[str, float | None] = {name: getattr(cell, name).value for name in _TOTALS}
    totals["num_problems"] = cell.num_problems_counted or None
    counts = {name: float(getattr(cell, name)) for name in ("num_tasks_ok", "num_tasks_skipped", "num_tasks_failed")}
    means = iteration_means(counted_iterations(rows, agree))
    by_iteration = {
        int(str(number)): {str(name): float(value) for name, value in row.dropna().items()}
        for number, row in means.iterrows()
    }
    return CellSummary(
        cell_key=cell.cell_key,
        params={name: value for name, value in params.items() if pd.notna(value)},
        metrics_by_iteration=by_iteration,
        totals=counts | {name: float(value) for name, value in totals.items() if value is not None},
    )
