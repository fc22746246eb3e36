"""A measurement of drafts: its rows, and every figure that is shown of it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fairwitness.analysis.draft_sources import Comparison, ReaderAgreement, compare_sources, reader_agreements
from fairwitness.analysis.drafts import (
    DraftCounts,
    Rate,
    answer_tokens,
    answer_tokens_average,
    behaviour_shares,
    consistency_average,
    consistency_rates,
    draft_counts,
    intra_average,
    intra_rates,
    outcome_counts,
    paper_rates,
    read_continuations,
    reliance_average,
    reliance_rates,
    without_verdict,
)
from fairwitness.errors import StoreError
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import one_of
from fairwitness_schemas.drafts import JOB

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


AVERAGE = "average"
STEP = ("intervention", "insertion_type")
Measure = Callable[[pd.DataFrame], list[Rate]]


@dataclass(frozen=True)
class DraftFigures:
    """The figures of a run.

    Attributes:
        intra: δ_intra by intervention and type of step, `average` among the interventions (Table 1).
        positions: The same by position too.
        behaviours: The same by behaviour too.
        crossed: By position and behaviour.
        corrects: Share of corrections by intervention and type (Figures 7 and 8).
        figure_4: δ_intra by type, behaviour and position (Figures 4 and 6).
        reliance: By kind of conclusion (Table 3).
        consistency: By kind of conclusion and way of answering (Table 4).
        tokens: Tokens of standard answers by kind of conclusion (Table 6).
        sources: Name of a measure → own beside external drafts.
        agreements: Judge and rules; None where there is no judge.
        drafts: Counts of drafts.
        outcomes: See `outcome_counts`.
        lost: See `without_verdict`.
    """

    intra: list[Rate]
    positions: list[Rate]
    behaviours: list[Rate]
    crossed: list[Rate]
    corrects: list[Rate]
    figure_4: list[Rate]
    reliance: list[Rate]
    consistency: list[Rate]
    tokens: list[Rate]
    sources: dict[str, list[Comparison]]
    agreements: list[ReaderAgreement] | None
    drafts: list[DraftCounts]
    outcomes: pd.DataFrame
    lost: pd.DataFrame


def draft_figures(run: DraftRun) -> DraftFigures:
    """All figures of a run. Equal rows give equal figures."""
    rows, seed = run.rows, run.seed
    tables = measures(seed)
    judge, order = run.judge, run.config["conclusion_order"]
    return DraftFigures(
        intra=tables["within the draft"](rows),
        positions=intra_rates(rows, [*STEP, "position"], seed=seed),
        behaviours=intra_rates(rows, [*STEP, "behaviour"], seed=seed),
        crossed=intra_rates(rows, [*STEP, "position", "behaviour"], seed=seed),
        corrects=behaviour_shares(rows, STEP, seed=seed),
        figure_4=paper_rates(rows, seed=seed),
        reliance=tables["draft reliance"](rows),
        consistency=tables["draft-answer consistency"](rows),
        tokens=tables["answer tokens"](rows),
        sources={name: compare_sources(rows, one) for name, one in tables.items()},
        agreements=None if judge is None else reader_agreements(rows, judge=judge, conclusion_order=order, seed=seed),
        drafts=draft_counts(run.drafts),
        outcomes=outcome_counts(rows),
        lost=without_verdict(run.problems, run.drafts, rows),
    )


def measures(seed: int) -> dict[str, Measure]:
    """The four tables of the paper, each with its averages, as functions of rows."""
    return {
        "within the draft": _with_average(functools.partial(intra_rates, by=STEP), intra_average, seed),
        "draft reliance": _with_average(reliance_rates, reliance_average, seed),
        "draft-answer consistency": _with_average(consistency_rates, consistency_average, seed),
        "answer tokens": _with_average(answer_tokens, answer_tokens_average, seed),
    }


def _with_average(rates: Callable[..., list[Rate]], averages: Callable[..., list[Rate]], seed: int) -> Measure:
    def both(rows: pd.DataFrame) -> list[Rate]:
        averaged = [replace(rate, group=rate.group | {"intervention": AVERAGE}) for rate in averages(rows, seed=seed)]
        return [*rates(rows, seed=seed), *averaged]

    return both
