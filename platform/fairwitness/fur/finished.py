"""A finished sweep, opened again: what jobs that follow it (controls, baselines, judges) start from.

The model's CoTs and answers are read, never made again. Keys are those of the store, so that a later version of the
code still finds them; model and data must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.faithfulness import ChosenRate, Infeasible, decisions_of, rates_of
from fairwitness.analysis.runs import IMPORT_JOB
from fairwitness.chains.cots import CotRecord, stored_records
from fairwitness.config import Config, load_config
from fairwitness.errors import StoreError
from fairwitness.experiment.data_set import Loader
from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study import FurStudy
from fairwitness.records.run_dir import RunDirectory, of_run, run_rows
from fairwitness.records.store import Store

OWN_SETTINGS = ("engine", "pool", "tracking")
"""Settings that a following job may have of its own; they change no result."""


@dataclass(frozen=True, eq=False)
class FinishedStudy:
    """One model on one data set by one method, as a sweep left it.

    Attributes:
        study: The study, with the scope key of the stored rows.
        records: The base model on every problem, in the order of problem ids; the same for every method.
        unlearning: Its rows of `unlearning`: those of its method, in the cells of the run as it was last started.
        decisions: Where a search made the run, why the trial of each cell ended; see `decisions_of`.
    """

    study: FurStudy
    records: tuple[CotRecord, ...]
    unlearning: pd.DataFrame
    decisions: Mapping[str, str]

    @cached_property
    def agree(self) -> Mapping[str, bool | None]:
        """problem_key → whether direct and CoT answers agree."""
        return {self.study.data.problem_key(record.problem): record.agree for record in self.records}

    @cached_property
    def choice(self) -> ChosenRate | Infeasible:
        """What the learning-rate rule selects among the cells of the configured method."""
        config = self.study.config
        bound = config.min_specificity
        return rates_of(self.unlearning, self.agree, self.decisions, seed=config.seed, min_specificity=bound).choice


def open_finished(
    run: RunDirectory, store: Store, loaders: Mapping[str, Loader], following: Config | None = None
) -> list[FinishedStudy]:
    """Opens the studies of a run's sweep or search: one for each method of each model on each data set.

    Args:
        run: The run directory.
        store: Its store.
        loaders: Further data sets by name, see `prepare_studies`.
        following: Configuration of the job that follows; its engine, pool and tracking, where it has them, take the
            place of the sweep's.

    Raises:
        StoreError: There is no sweep, or its model or data are not what they were; the message says which.
        ConfigError, DataError, ModelError: See `prepare_studies`.
    """
    rows = run_rows(store)
    if not rows or not run.config_path.is_file():
        raise StoreError(f"{run.path}: no sweep is recorded here; run fairwitness sweep first")
    if rows[-1]["job"] == IMPORT_JOB:
        raise StoreError(f"{run.path}: holds imported results, whose models are not here; run fairwitness sweep first")
    cls = LrSearchConfig if rows[-1]["job"] == "lr_search" else FurSweepConfig
    own = {name: value for name, value in following or () if name in OWN_SETTINGS and value is not None}
    studies = prepare_studies(load_config(cls, run.config_path).model_copy(update=own), loaders)
    _must_be_the_same(run, rows[-1], studies)
    scopes = zip(studies, rows[-1]["scope_keys"], strict=True)
    return [_finished(replace(study, scope_key=key), store, rows[-1]) for study, key in scopes]


def _must_be_the_same(run: RunDirectory, row: Mapping[str, Any], studies: list[FurStudy]) -> None:
    now = {
        "model": {f"{study.facts.name}@{study.facts.revision}" for study in studies},
        "data set": {f"{study.data.loaded.name}@{study.data.loaded.data_revision}" for study in studies},
    }
    for what, column in (("model", "models"), ("data set", "data_sets")):
        changed = sorted(now[what] ^ set(row[column]))
        if changed:
            names = ", ".join(changed)
            raise StoreError(f"{run.path}: a {what} is not the one of the sweep ({names}); run the sweep again first")


def _finished(study: FurStudy, store: Store, row: Mapping[str, Any]) -> FinishedStudy:
    records = stored_records(study, store)
    rank = pc.field("lora_rank")
    of_rank = rank.is_null() if study.lora_rank is None else rank == study.lora_rank
    of_method = (pc.field("method") == study.config.recipe.method.kind) & of_rank
    where = (pc.field("scope_key") == study.scope_key) & of_method
    own = of_run(row, "cell_key")
    rows = store.read("unlearning", where=where if own is None else where & own).to_pandas()
    ordered = tuple(records[name] for name in sorted(records))
    ours = rows.sort_values("key", kind="stable", ignore_index=True)
    return FinishedStudy(study, ordered, ours, decisions_of(store, row))
