"""The rate that a finished search selected for a model and a data set: `lr: selected` in a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from fairwitness.config import validate
from fairwitness.errors import ConfigError, InfeasibleError, StoreError
from fairwitness.fur.config import RecipeConfig
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store

_REMEDY = "search again with the sweep's settings (fairwitness search)"


class SearchSubject(NamedTuple):
    """What a rate is wanted for; revisions tell two versions of a model or data set apart."""

    model: str
    model_revision: str
    data_set: str
    data_revision: str
    recipe: RecipeConfig


def selected_rate(search: Path | str, wanted: SearchSubject) -> float:
    """The selected rate.

    Args:
        search: Directory of the search's run.
        wanted: What it is for.

    Raises:
        ConfigError: There is no finished search, it did not search this model on this data set, or with another
            version of them or another recipe.
        InfeasibleError: No rate is feasible there; the message names the nearest miss.
    """
    place = f"lr_search: {search}"
    try:
        store = RunDirectory.at(search).store(create=False)
    except StoreError as error:
        raise ConfigError(f"lr_search: {error}") from error
    rows = run_rows(store, "lr_search")
    if not rows:
        raise ConfigError(f"{place}: no search is recorded here; run fairwitness search first")
    if rows[-1]["status"] != "done":
        raise ConfigError(f"{place}: the search is not finished ({rows[-1]['status']}); run it to its end first")
    trials = _trials(store, rows[-1], place, wanted)
    _must_match(rows[-1], place, wanted)
    for trial in trials:
        if trial["is_selected"]:
            return float(trial["lr"])
    raise InfeasibleError(f"{place}: no feasible rate for {wanted.model} on {wanted.data_set}; {_nearest(trials)}")


def _trials(store: Store, row: Mapping[str, Any], place: str, wanted: SearchSubject) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = store.read("trials", where=pc.field("run_key") == row["key"]).to_pylist()
    found = [t for t in trials if (t["model"], t["data_set"]) == (wanted.model, wanted.data_set)]
    if not found:
        there = ", ".join(sorted({f"{t['model']} on {t['data_set']}" for t in trials})) or "nothing"
        raise ConfigError(f"{place}: did not search {wanted.model} on {wanted.data_set}, but {there}; {_REMEDY}")
    return found


def _must_match(row: Mapping[str, Any], place: str, wanted: SearchSubject) -> None:
    recipe = validate(RecipeConfig, json.loads(row["config_json"])["recipe"], place)
    theirs, ours = recipe.model_dump(mode="json"), wanted.recipe.model_dump(mode="json")
    different = [f"{name} {theirs[name]} there, {ours[name]} here" for name in ours if theirs[name] != ours[name]]
    if different:
        raise ConfigError(f"{place}: has another recipe ({'; '.join(different)}); {_REMEDY}")
    versions = (
        ("models", "model", wanted.model, wanted.model_revision),
        ("data_sets", "data set", wanted.data_set, wanted.data_revision),
    )
    for column, what, name, revision in versions:
        if f"{name}@{revision}" not in row[column]:
            raise ConfigError(f"{place}: searched another version of {what} {name}; {_REMEDY}")


def _nearest(trials: list[dict[str, Any]]) -> str:
    rated = [t for t in trials if t["specificity"] is not None and t["status"] == "ok"]
    if not rated:
        return "no rate has a measured specificity"
    nearest = max(rated, key=lambda t: (t["specificity"], t["efficacy"], -t["lr"]))
    return (
        f"the nearest miss is {nearest['lr']:g} with specificity {100 * nearest['specificity']:.1f} where "
        f"{nearest['min_specificity']:g} is asked for; give `rates` instead, or search lower ones"
    )
