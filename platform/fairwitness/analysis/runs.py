"""Reads what one run measured: its latest row in `runs`, and the rows of the other tables that belong to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairwitness.analysis.faithfulness import MIN_SPECIFICITY, decisions_of
from fairwitness.analysis.step_results import TASK_COLUMNS
from fairwitness.config import fingerprint
from fairwitness.errors import StoreError
from fairwitness.records.run_dir import WITHOUT_EFFECT, of_run, run_rows
from fairwitness.records.store import Store, one_of
from fairwitness.stats.bootstrap import named_rng

BASELINES_JOB = "fur_baselines"
"""The job that writes `baselines`."""
JUDGE_JOB = "fur_judge"
"""The job that writes `judgements`."""
CAPABILITY_JOB = "fur_capability"
"""The job that writes `capability`."""
IMPORT_JOB = "fur_import"
"""The job whose runs hold results of others."""
CELL_RATES = "rates of cells"
"""Where the health of such a run has the learning rates that files tell, by cell_key."""


def imported_rates(store: Store) -> Mapping[str, float]:
    """cell_key to learning rate, of all imports of a store; for cells whose unlearning is not stored.

    Raises:
        StoreError: The store cannot be read.
    """
    found: dict[str, float] = {}
    for row in run_rows(store, IMPORT_JOB):
        found |= json.loads(row["health_json"] or "{}").get(CELL_RATES, {})
    return found


_ITS_PLACE = ("run", *WITHOUT_EFFECT)
_UNLEARNING_COLUMNS = ["key", *TASK_COLUMNS, "scope_key", "model_revision", "cot_after_text", "cot_after_letter"]
_COT_COLUMNS = [
    *("key", "scope_key", "problem_key", "problem_id", "data_set", "model", "model_revision", "prompt_style"),
    *("cot_ids", "cot_text", "finish", "direct_letter", "direct_probs", "direct_letter_mass"),
    *("cot_letter", "cot_letter_mass", "agree", "num_cot_steps", "status", "reason"),
]
_STEP_COLUMNS = [
    *("key", "scope_key", "cot_key", "data_set", "problem_id", "cot_step_index", "char_start", "char_end"),
    *("token_start", "token_end", "text", "content_positions", "eligible", "base_logprob", "status", "reason"),
]
_BASELINE_COLUMNS = [
    *("key", "baseline", "baseline_key", "scope_key", "data_set", "model", "problem_id", "problem_key"),
    *("cot_step_index", "source", "flipped", "score", "status", "reason"),
]


@dataclass(frozen=True)
class Run:
    """One run and its rows.

    Attributes:
        info: The run's row in `runs`.
        config: The resolved configuration.
        health: Self-checks and health figures, as the job stored them.
        environment: Versions and machine, as the job stored them.
        problems: Rows of `problems` of the run's data sets, refused ones included.
        cots: Rows of `cots` in the run's scopes.
        cot_steps: Rows of `cot_steps` in the run's scopes.
        unlearning: Rows of `unlearning` in the run's cells.
        baselines: Rows of `baselines` in the run's scopes, of the settings below.
        baseline_settings: baseline_key → settings of a baseline, in the order of the jobs.
        decisions: Where a search made the run, why the trial of each cell ended; see `decisions_of`.
        capability: Rows of `capability` in the run's scopes.
        others: Of results of others, scope_key, model and data_set of judgements and ratings, each once.
    """

    info: dict[str, Any]
    config: dict[str, Any]
    health: dict[str, Any]
    environment: dict[str, Any]
    problems: pd.DataFrame
    cots: pd.DataFrame
    cot_steps: pd.DataFrame
    unlearning: pd.DataFrame
    baselines: pd.DataFrame
    baseline_settings: Mapping[str, Mapping[str, Any]]
    decisions: Mapping[str, str]
    capability: pd.DataFrame
    others: pd.DataFrame

    @property
    def is_imported(self) -> bool:
        """Whether others measured what it holds."""
        return bool(self.info["job"] == IMPORT_JOB)

    @property
    def seed(self) -> int:
        """Seed of the run, and of its intervals; 0 where it is not recorded."""
        seed = find_setting(self.config, "seed")
        return seed if isinstance(seed, int) and seed >= 0 else 0

    @property
    def min_specificity(self) -> float:
        """The limit of the learning-rate rule in percent: the run's own setting, else 95."""
        value = find_setting(self.config, "min_specificity")
        return float(value) if isinstance(value, int | float) else MIN_SPECIFICITY

    @cached_property
    def gold(self) -> Mapping[str, str]:
        """problem_key → gold letter, where it is known."""
        known = self.problems[self.problems["status"].eq("ok") & self.problems["gold"].notna()]
        return dict(zip(known["key"], known["gold"], strict=True))

    def metadata(self, name: str) -> dict[str, Any]:
        """problem_key → what the metadata of a problem says under a name; problems without it are left out."""
        rows = self.problems[self.problems["status"].eq("ok")]
        pairs = zip(rows["key"], rows["metadata_json"].map(_json_object), strict=True)
        return {key: metadata[name] for key, metadata in pairs if name in metadata}

    def rng(self, *names: str) -> np.random.Generator:
        """A generator that depends on the run's seed and on what it is for, so that intervals are remade the same."""
        return named_rng(self.seed, *names)


def load_run(run_dir: Path) -> Run:
    """Reads the latest run of a run directory. Frames are sorted by key, so equal stores give equal frames.

    Raises:
        StoreError: There is no store, no run in it, or it cannot be read.
    """
    store = Store(Path(run_dir) / "store", create=False)
    info = _latest_run(store, run_dir)
    cots = _frame(store.read("cots", _COT_COLUMNS, of_run(info)))
    baselines = _baseline_settings(store)
    old = superseded(store, CAPABILITY_JOB)
    of_baselines = _with(of_run(info), one_of("baseline_key", baselines))
    return Run(
        info=info,
        config=_json_object(info["config_json"]),
        health=_json_object(info["health_json"]),
        environment=_json_object(info["environment_json"]),
        problems=_problems(store, info, cots["problem_key"]),
        cots=cots,
        cot_steps=_frame(store.read("cot_steps", _STEP_COLUMNS, one_of("cot_key", cots["key"]))),
        unlearning=_frame(store.read("unlearning", _UNLEARNING_COLUMNS, of_run(info, "cell_key"))),
        baselines=_frame(store.read("baselines", _BASELINE_COLUMNS, of_baselines)),
        baseline_settings=baselines,
        decisions=decisions_of(store, info),
        capability=_frame(store.read("capability", where=_with(of_run(info), ~one_of("capability_revision", old)))),
        others=_others(store, info),
    )


def find_setting(config: Any, name: str) -> Any:
    """The first value under a key of this name, at any depth; None when there is none."""
    if isinstance(config, dict):
        if name in config:
            return config[name]
        children = list(config.values())
    else:
        children = list(config) if isinstance(config, list) else []
    found = (find_setting(child, name) for child in children)
    return next((value for value in found if value is not None), None)


def _latest_run(store: Store, run_dir: Path) -> dict[str, Any]:
    rows = run_rows(store)
    if not rows:
        raise StoreError(f"{run_dir}: no run is recorded here; start the job again or give another directory")
    return rows[-1]


def _baseline_settings(store: Store) -> dict[str, Mapping[str, Any]]:
    """Settings by baseline_key: of the latest baselines job, and of earlier ones of the same code."""
    jobs = run_rows(store, BASELINES_JOB)
    found: dict[str, Mapping[str, Any]] = {}
    for job in jobs:
        if job["code_revision"] == jobs[-1]["code_revision"]:
            found |= dict(zip(job["cell_keys"] or [], _json_object(job["config_json"])["baselines"], strict=False))
    return found


def superseded(store: Store, job: str) -> set[str]:
    """Keys of earlier starts of a job that a later start with the same settings has others in the place of.

    Args:
        store: The store of a run.
        job: A job that follows on a run; its `cell_keys` name what it asks, with the code that asks it.
    """
    latest: dict[str, set[str]] = {}
    known: set[str] = set()
    for row in run_rows(store, job):
        settings = {name: value for name, value in _json_object(row["config_json"]).items() if name not in _ITS_PLACE}
        latest[fingerprint(settings)] = set(row["cell_keys"] or ())
        known.update(row["cell_keys"] or ())
    return known.difference(*latest.values())


def _others(store: Store, info: dict[str, Any]) -> pd.DataFrame:
    names = ["scope_key", "model", "data_set"]
    if info["job"] != IMPORT_JOB:
        return pd.DataFrame(columns=names)
    where = None if info["scope_keys"] is None else one_of("scope_key", info["scope_keys"])
    found = [store.read(table, names, where).to_pandas() for table in ("judgements", "ratings")]
    distinct: pd.DataFrame = pd.concat(found).drop_duplicates()
    return distinct.sort_values(names, ignore_index=True)


def _with(one: pc.Expression | None, other: pc.Expression) -> pc.Expression:
    return other if one is None else one & other


def _problems(store: Store, info: Mapping[str, Any], used_keys: pd.Series[str]) -> pd.DataFrame:
    frame, data_sets = _frame(store.read("problems")), list(info["data_sets"] or [])
    names = frame["data_set"].fillna("")
    of_data = names.isin(data_sets) | (names + "@" + frame["data_revision"].fillna("")).isin(data_sets)
    if info["problem_keys"] is not None:
        # A problem keeps its key while its file changes around it; a refused record belongs to one version of its file.
        of_data &= frame["status"].eq("refused")
    return frame[of_data | frame["key"].isin(used_keys)].reset_index(drop=True)


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    if "lora_rank" in frame:
        frame["lora_rank"] = frame["lora_rank"].astype("Int64")
    return frame.sort_values("key", kind="stable", ignore_index=True)


def _json_object(text: Any) -> dict[str, Any]:
    value = json.loads(text) if isinstance(text, str) and text else {}
    return value if isinstance(value, dict) else {}
