"""The steps of a run that people can rate, and the names that raters see instead of theirs."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.faithfulness import (
    MIN_SPECIFICITY,
    CellFaithfulness,
    ChosenRate,
    Rates,
    decisions_of,
    rates_of,
)
from fairwitness.analysis.identity import PanelId, panel_id
from fairwitness.analysis.ratings import Candidate, item_name
from fairwitness.analysis.step_results import TASK_COLUMNS, agreement, step_results
from fairwitness.errors import ConfigError, StoreError
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store, one_of
from fairwitness.text.numbers import shown_rate

_COLUMNS = [*TASK_COLUMNS, "place_key", "scope_key"]


@dataclass(frozen=True)
class Step:
    """A measured step of a CoT.

    Attributes:
        item: Name that raters see; says nothing about the step.
        task_key: Its task in `unlearning`.
        cell_key: Its cell.
        scope_key: Its scope.
        model: Name of the model.
        data_set: Name of the data set.
        problem_id: Name of the problem.
        problem_key: Key in `problems`.
        cot_step_index: Position in the CoT, from 0.
        base_letter: Direct answer of the base model.
        ff_soft: At the final iteration; None when it is undefined.
    """

    item: str
    task_key: str
    cell_key: str
    scope_key: str
    model: str
    data_set: str
    problem_id: str
    problem_key: str
    cot_step_index: int
    base_letter: str
    ff_soft: float | None

    @property
    def candidate(self) -> Candidate:
        """The step as something to draw; its ff-soft must be defined."""
        assert self.ff_soft is not None
        return Candidate(self.problem_id, self.cot_step_index, self.ff_soft)


@dataclass(frozen=True)
class Group(PanelId):
    """A panel's steps that can be drawn, or why there are none.

    Attributes:
        lr: The learning rate that the steps are from; None when there are none.
        steps: Measured steps of problems whose direct and CoT answers agree, by problem and position.
        reason: Why there are none.
    """

    lr: float | None
    steps: tuple[Step, ...]
    reason: str | None = None

    @property
    def label(self) -> str:
        """Model, data set and method."""
        return f"{self.model} on {self.data_set}, {self.method_name}"


def read_groups(run: RunDirectory, store: Store, *, lr: float | None = None) -> list[Group]:
    """The groups of a run, each at the rate that the rule selects, or at a given one.

    Args:
        run: The run directory.
        store: Its store.
        lr: The learning rate to take the steps of, instead of the rule.

    Raises:
        StoreError: No run is recorded, or nothing was unlearned in it.
        ConfigError: No cell has the given rate.
    """
    rows = run_rows(store)
    if not rows:
        raise StoreError(f"{run.path}: no run is recorded here; run fairwitness sweep first")
    info = rows[-1]
    where = one_of("cell_key", info["cell_keys"] or ())
    frame = store.read("unlearning", _COLUMNS, where).to_pandas()
    if frame.empty:
        raise StoreError(f"{run.path}: no step was unlearned in this run, so there is none to rate")
    config = json.loads(info["config_json"])
    decisions = decisions_of(store, info)
    groups = [
        _group(part, _agreement(store, str(names[-1])), config, lr, decisions)
        for names, part in frame.groupby(["model", "data_set", "method", "lora_rank", "scope_key"], dropna=False)
    ]
    if lr is not None and not any(group.steps for group in groups):
        known = ", ".join(shown_rate(rate) for rate in sorted(frame["lr"].dropna().unique()))
        raise ConfigError(
            f"--lr {shown_rate(lr)}: {run.path} has no step of a counted problem at this rate (rates: {known})"
        )
    return groups


def steps_by_item(store: Store, items: Collection[str]) -> dict[str, Step]:
    """The measured steps of a store, of whatever rate, that have these names.

    Raises:
        StoreError: The store cannot be read.
    """
    rows = store.read("unlearning", ["task_key", "place_key"], pc.field("status") == "ok").to_pylist()
    places = {row["task_key"]: row["place_key"] or row["task_key"] for row in rows}
    wanted = [key for key, place in places.items() if item_name(place) in items]
    frame = store.read("unlearning", _COLUMNS, one_of("task_key", wanted)).to_pandas()
    return {step.item: step for step in _steps(frame)} if len(frame) else {}


def _group(
    part: pd.DataFrame,
    agree: Mapping[str, bool | None],
    config: Mapping[str, Any],
    lr: float | None,
    decisions: Mapping[str, str],
) -> Group:
    named = vars(panel_id(part.iloc[0]))
    rates = rates_of(
        part,
        agree,
        decisions,
        seed=int(config.get("seed", 0)),
        min_specificity=float(config.get("min_specificity", MIN_SPECIFICITY)),
    )
    chosen = _cell(rates, lr)
    if isinstance(chosen, str):
        return Group(**named, lr=None, steps=(), reason=chosen)
    found = _steps(part[part["cell_key"] == chosen.cell_key])
    steps = tuple(step for step in found if agree.get(step.problem_key) and step.ff_soft is not None)
    return Group(**named, lr=chosen.lr, steps=steps)


def _cell(rates: Rates, lr: float | None) -> CellFaithfulness | str:
    if lr is not None:
        same = [cell for cell in rates.cells if math.isclose(cell.lr, lr, rel_tol=1e-9)]
        return same[0] if same else f"no cell has the rate {shown_rate(lr)}"
    choice = rates.choice
    return choice.cell if isinstance(choice, ChosenRate) else f"{choice.reason} Name a rate with --lr."


def _agreement(store: Store, scope_key: str) -> Mapping[str, bool | None]:
    rows = store.read("cots", ["problem_key", "agree"], pc.field("scope_key") == scope_key)
    return agreement(rows.to_pandas())


def _steps(frame: pd.DataFrame) -> Iterator[Step]:
    results = step_results(frame)
    first = frame.drop_duplicates("task_key").set_index("task_key")
    names = first["place_key"].fillna(first.index.to_series())
    for row in results[results["status"] == "ok"].to_dict("records"):
        yield Step(
            item=item_name(names[row["task_key"]]),
            task_key=row["task_key"],
            cell_key=row["cell_key"],
            scope_key=str(first["scope_key"][row["task_key"]]),
            model=row["model"],
            data_set=row["data_set"],
            problem_id=row["problem_id"],
            problem_key=row["problem_key"],
            cot_step_index=int(row["cot_step_index"]),
            base_letter=row["base_letter"],
            ff_soft=None if pd.isna(row["ff_soft_final"]) else float(row["ff_soft_final"]),
        )
