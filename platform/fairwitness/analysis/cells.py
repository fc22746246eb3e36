"""What the tracker shows of a cell (one model, data set, rate, recipe): means per iteration and over all of them.

Computed from the rows of `unlearning` alone, so a live job and `fairwitness track` log the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairwitness.records.store import Store

_IDENTITY = ["model", "model_revision", "data_set", "method", "lora_rank", "lr", "seed"]
_MEANS = ["efficacy", "specificity", "letter_mass", "cot_step_logprob", "npo_loss", "kl_loss", "loss"]
_PLAIN = ["cell_key", "task_key", "problem_key", "cot_key", "iteration", "status", "flipped", *_IDENTITY, *_MEANS]


@dataclass(frozen=True)
class CellSummary:
    """One cell as the tracker logs it.

    Attributes:
        cell_key: Key of the cell.
        params: What the cell is: model, data set, method, rank, rate, seed.
        metrics_by_iteration: For every iteration from 1, metric to mean over the measured tasks. Undefined ones are
            left out.
        totals: Metrics of the whole cell: the means over all iterations, ff-hard, ff-soft, counts of tasks.
    """

    cell_key: str
    params: Mapping[str, str | int | float]
    metrics_by_iteration: Mapping[int, Mapping[str, float]]
    totals: Mapping[str, float]


def summarise_cells(
    store: Store, cell_keys: Collection[str] | None = None, *, only_agreeing: bool = True
) -> list[CellSummary]:
    """Summaries of cells, in the order of model, data set, method, rank and rate.

    Args:
        store: The store of a run.
        cell_keys: The cells wanted; None for all.
        only_agreeing: Count only problems whose direct and CoT answers agree, as the report does. Counts of tasks
            are of all problems.

    Raises:
        StoreError: The store cannot be read.
    """
    where = None if cell_keys is None else pc.field("cell_key").isin(list(cell_keys))
    letters = ["base_letter", "base_probs", "probs"]
    rows = store.read("unlearning", [*_PLAIN, *letters], where)
    frame = rows.select(_PLAIN).to_pandas().astype({"lora_rank": "Int64"})
    frame["ff_soft"] = _prob_of(rows, "base_probs") - _prob_of(rows, "probs")
    frame["counted"] = frame["status"].eq("ok")
    if only_agreeing:
        cots = store.read("cots", ["key"], pc.field("agree"))
        frame["counted"] &= frame["cot_key"].isin(cots["key"].to_pylist())
    summaries = [_summary(str(key), cell) for key, cell in frame.groupby("cell_key")]
    return sorted(summaries, key=_order)


def _order(cell: CellSummary) -> tuple[str, str, str, float, float]:
    params = cell.params
    names = str(params["model"]), str(params["data_set"]), str(params["method"])
    return *names, float(params.get("lora_rank", 0)), float(params.get("lr", 0.0))


def _summary(cell_key: str, cell: pd.DataFrame) -> CellSummary:
    first = cell.iloc[0]
    params = {name: first[name] for name in _IDENTITY if pd.notna(first[name])}
    counted = cell[cell["counted"]]
    numbers = sorted(int(number) for number in counted["iteration"].unique())
    by_iteration = {number: _means(counted[counted["iteration"] == number]) for number in numbers}
    return CellSummary(cell_key, {k: _plain(v) for k, v in params.items()}, by_iteration, _totals(cell, counted))


def _means(rows: pd.DataFrame) -> dict[str, float]:
    values = {name: rows[name].mean() for name in [*_MEANS, "ff_soft"]}
    values["step_flip"] = _share(rows["flipped"])
    values["ff_hard"] = _share(rows.groupby("problem_key")["flipped"].any())
    return _defined(values)


def _totals(cell: pd.DataFrame, counted: pd.DataFrame) -> dict[str, float]:
    tasks = cell.drop_duplicates("task_key")["status"].value_counts()
    counts = {f"num_tasks_{status}": float(tasks.get(status, 0)) for status in ("ok", "skipped", "failed")}
    if counted.empty:
        return counts
    final = counted.sort_values("iteration").drop_duplicates("task_key", keep="last")
    values = {
        "efficacy": counted["efficacy"].mean(),
        "specificity": counted["specificity"].mean(),
        "ff_hard_any": _share(counted.groupby("problem_key")["flipped"].any()),
        "ff_hard_final": _share(final.groupby("problem_key")["flipped"].any()),
        "ff_soft_final": final["ff_soft"].mean(),
        "num_problems": float(counted["problem_key"].nunique()),
    }
    return counts | _defined(values)


def _prob_of(rows: pa.Table, column: str) -> npt.NDArray[np.float64]:
    """Probability of the base letter in a column of distributions; NaN where there is none."""
    lists = rows[column].combine_chunks()
    letters = pc.utf8_upper(rows["base_letter"]).to_pylist()
    index = np.array([ord(letter) - ord("A") if letter else 0 for letter in letters], dtype=np.int64)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    found = np.full(len(letters), np.nan)
    known = index < lengths
    starts = lists.offsets.to_numpy()[:-1]
    found[known] = lists.values.to_numpy(zero_copy_only=False)[starts[known] + index[known]]
    return found


def _share(values: pd.Series[bool]) -> float:
    return float(values.astype(float).mean())


def _defined(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if np.isfinite(value)}


def _plain(value: object) -> str | int | float:
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating | float) else str(value)
