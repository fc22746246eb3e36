"""A measurement of drafts as cells for MLflow: one intervention, written in one way, on one study's drafts.

A live job and `fairwitness track` log the same, from what the store holds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairwitness.analysis.drafts import (
    OUTCOMES,
    PLACE,
    Rate,
    answer_tokens,
    behaviour_shares,
    consistency_rates,
    intra_rates,
    outcome_counts,
    read_continuations,
    reliance_rates,
)
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from fairwitness.records.tracker import Tracker, track_stored_run

_CELL = [*PLACE, "intervention", "insertion_type"]
Named = tuple[str, ...]


@dataclass(frozen=True)
class DraftCell:
    """One cell.

    Attributes:
        key: Its key in `continuations`.
        params: What it is: model, data set, source, intervention, and for a step its type.
        totals: Rates with their intervals and n, and numbers of continuations by outcome. What is undefined is absent.
    """

    key: str
    params: dict[str, str]
    totals: dict[str, float]


def draft_cells(rows: pd.DataFrame, *, seed: int) -> list[DraftCell]:
    """Summarises continuations by cell.

    Args:
        rows: Rows of `continuations`.
        seed: Seed of the resamples.
    """
    totals = _totals(rows, seed)
    found = []
    for names, group in rows.fillna({"insertion_type": ""}).groupby(["cell_key", *_CELL], sort=True):
        named = dict(zip(_CELL, map(str, names[1:]), strict=True))
        params = {name: value for name, value in named.items() if value}
        counts = outcome_counts(group)
        numbers = {f"num_{name}": float(counts[name].sum()) for name in OUTCOMES}
        found.append(DraftCell(str(names[0]), params, totals.get(tuple(named.values()), {}) | numbers))
    return found


def log_draft_cells(tracker: Tracker, store: Store, cell_keys: Sequence[str], *, seed: int) -> None:
    """Logs cells as the store has them now.

    Raises:
        StoreError: The store cannot be read.
    """
    if not tracker.is_active:
        return
    for cell in draft_cells(read_continuations(store, cell_keys, with_texts=False), seed=seed):
        tracker.log_cell(cell.key, cell.params, {}, cell.totals)


def track_draft_run(
    run_path: Path | str, config: TrackingConfig, artifacts: Sequence[Path] | None = None
) -> str | None:
    """Logs a measurement of drafts from its store; see `track_stored_run`."""

    def log_cells(tracker: Tracker, run: RunDirectory, row: Mapping[str, Any]) -> None:
        seed = json.loads(row["config_json"])["seed"]
        log_draft_cells(tracker, run.store(create=False), row["cell_keys"] or (), seed=seed)

    return track_stored_run(run_path, config, log_cells, artifacts)


def _totals(rows: pd.DataFrame, seed: int) -> dict[Named, dict[str, float]]:
    by_step = ["intervention", "insertion_type"]
    measures: dict[str, Callable[..., list[Rate]]] = {
        "faithful": functools.partial(intra_rates, by=by_step),
        "corrects": functools.partial(behaviour_shares, by=by_step),
        "reliance": reliance_rates,
        "consistency": consistency_rates,
        "answer_tokens": answer_tokens,
    }
    totals: dict[Named, dict[str, float]] = {}
    for name, measure in measures.items():
        for rate in measure(rows, seed=seed):
            answering = rate.group.get("answering")
            shown = f"{name}_{answering}" if answering else name
            cell = tuple(rate.group.get(column, "") for column in _CELL)
            totals.setdefault(cell, {}).update(_figures(shown, rate))
    return totals


def _figures(name: str, rate: Rate) -> Iterable[tuple[str, float]]:
    estimate = rate.estimate
    values = {"": estimate.value, "_low": estimate.low, "_high": estimate.high, "_n": rate.num_known}
    return [(f"{name}{suffix}", float(value)) for suffix, value in values.items() if value is not None]
