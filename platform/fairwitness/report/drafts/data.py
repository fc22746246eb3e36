"""Reads what a measurement of drafts has in its store: the latest run, and the rows that belong to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.drafts.config import JOB
from fairwitness.drafts.stored import read_continuations
from fairwitness.errors import StoreError
from fairwitness.records.conditions import one_of
from fairwitness.records.run_dir import RunDirectory, run_rows

_DRAFT_COLUMNS = [
    *("key", "scope_key", "problem_key", "problem_id", "data_set", "model", "source", "prompt_style", "draft_text"),
    *("finish", "irregular", "answer_text", "answer_letter", "conclusion_letter", "conclusion_by", "num_cot_steps"),
    *("num_blocks", "status", "reason"),
]
_STEP_COLUMNS = ["key", "draft_key", "cot_step_index", "char_start", "char_end", "token_end", "label", "block_index"]


@dataclass(frozen=True)
class DraftRun:
    """One run and its rows.

    Attributes:
        info: The run's row in `runs`.
        config: The resolved configuration.
        environment: Versions and machine, as the job stored them.
        problems: Rows of `problems` of the run's data sets, refused ones included.
        drafts: Rows of `drafts` in the run's scopes.
        steps: Rows of `draft_steps` in them.
        rows: Rows of `continuations` in the run's cells; see `read_continuations`.
    """

    info: dict[str, Any]
    config: dict[str, Any]
    environment: dict[str, Any]
    problems: pd.DataFrame
    drafts: pd.DataFrame
    steps: pd.DataFrame
    rows: pd.DataFrame

    @property
    def seed(self) -> int:
        """Seed of the run, and of the intervals."""
        return int(self.config["seed"])

    @property
    def judge(self) -> str | None:
        """Name of the judge; None where rules alone read."""
        judge = self.config["judge"]
        if judge["kind"] == "rules":
            return None
        model = judge["model"]
        path = model if isinstance(model, str) else model.get("name") or model["model"]
        return str(judge.get("name") or path.rstrip("/").rsplit("/", 1)[-1])


def load_draft_run(run: RunDirectory) -> DraftRun:
    """Reads the latest measurement of drafts of a run directory; equal stores give equal frames.

    Raises:
        StoreError: None is recorded, or the store cannot be read.
    """
    store = run.store(create=False)
    rows = run_rows(store, JOB)
    if not rows:
        raise StoreError(f"{run.path}: no measurement of drafts is recorded here")
    info = rows[-1]
    config = json.loads(info["config_json"])
    scopes = info["scope_keys"] or ()
    continuations = read_continuations(store, info["cell_keys"] or ())
    wanted = continuations["position"].isna() | continuations["position"].isin(config["positions"])
    problems = store.read("problems").to_pandas()
    drafts = store.read("drafts", _DRAFT_COLUMNS, one_of("scope_key", scopes)).to_pandas()
    versions = problems["data_set"].fillna("") + "@" + problems["data_revision"].fillna("")
    of_run = versions.isin(list(info["data_sets"] or ())) | problems["key"].isin(drafts["problem_key"])
    return DraftRun(
        info=info,
        config=config,
        environment=json.loads(info["environment_json"] or "{}"),
        problems=problems[of_run].sort_values("key", ignore_index=True),
        drafts=drafts.sort_values(["model", "data_set", "source", "problem_id", "key"], ignore_index=True),
        steps=store.read("draft_steps", _STEP_COLUMNS, one_of("scope_key", scopes)).to_pandas(),
        rows=continuations[wanted].reset_index(drop=True),
    )
