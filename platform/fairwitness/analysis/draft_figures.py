"""A measurement of drafts: its rows, and every figure that is shown of it.

A model's own drafts stand beside those of all other models together: Measuring the Faithfulness of Thinking Drafts in
Large Reasoning Models, Tables 1, 3 and 4.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fairwitness.analysis.drafts import (
    MADE,
    PLACE,
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
from fairwitness.judges.agreement import PairAgreement, pair_agreements
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import one_of
from fairwitness.stats.bootstrap import Estimate
from fairwitness_schemas.drafts import JOB, OWN

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
    keys = info["text_keys"]
    continuations = read_continuations(store, info["cell_keys"] or (), keys)
    wanted = continuations["position"].isna() | continuations["position"].isin(config["positions"])
    problems = store.read("problems").to_pandas()
    own = one_of("scope_key", info["scope_keys"] or ()) if keys is None else one_of("key", keys)
    drafts = store.read("drafts", _DRAFT_COLUMNS, own).to_pandas()
    versions = problems["data_set"].fillna("") + "@" + problems["data_revision"].fillna("")
    is_refused = problems["status"].eq("refused") & versions.isin(list(info["data_sets"] or ()))
    of_run = is_refused | problems["key"].isin(drafts["problem_key"])
    return DraftRun(
        info=info,
        config=config,
        environment=json.loads(info["environment_json"] or "{}"),
        problems=problems[of_run].sort_values("key", ignore_index=True),
        drafts=drafts.sort_values(["model", "data_set", "source", "problem_id", "key"], ignore_index=True),
        steps=store.read("draft_steps", _STEP_COLUMNS, one_of("draft_key", drafts["key"])).to_pandas(),
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


RULES, JUDGE = "rules", "judge"


@dataclass(frozen=True)
class ReaderAgreement:
    """The rules and the judge on one question and group of continuations.

    Attributes:
        group: Model, data set and source of drafts.
        pair: Their agreement; `kind` is behaviour or conclusion.
    """

    group: dict[str, str]
    pair: PairAgreement


def reader_agreements(
    rows: pd.DataFrame, *, judge: str, conclusion_order: Sequence[str], seed: int
) -> list[ReaderAgreement]:
    """Agreement on behaviour and on ans(·), per model, data set and source; intervals draw whole problems.

    Continuations that were cut off have a behaviour, and count there; they have no conclusion. `none`, for a text
    without a conclusion, is a verdict.

    Args:
        rows: Rows of `continuations`.
        judge: Name of the judge.
        conclusion_order: Who reads a conclusion, as configured.
        seed: Seed of the resamples.
    """
    kinds = ["behaviour", "conclusion"] if tuple(conclusion_order)[:1] == (JUDGE,) else ["behaviour"]
    made = rows[rows["status"].isin(MADE)]
    found = []
    for names, group in made.groupby(list(PLACE), sort=True):
        verdicts = _verdicts(group, kinds, judge)
        pairs = pair_agreements(verdicts, seed=seed) if len(verdicts) else []
        found += [ReaderAgreement(dict(zip(PLACE, map(str, names), strict=True)), pair) for pair in pairs]
    return found


def _verdicts(rows: pd.DataFrame, kinds: Sequence[str], judge: str) -> pd.DataFrame:
    columns = ["kind", "judge", "judge_key", "item_key", "verdict", "data_set", "problem_id", "status"]
    parts = []
    for kind in kinds:
        for key, name in ((RULES, RULES), (JUDGE, judge)):
            known = rows[rows[f"{kind}_{key}"].notna()]
            named: dict[str, Any] = {"kind": kind, "judge": name, "judge_key": key, "item_key": known["key"]}
            parts.append(known.assign(**named, verdict=known[f"{kind}_{key}"], status="ok")[columns])
    return pd.concat(parts, ignore_index=True)


NOTEWORTHY = 0.1
"""Relative difference between own and external drafts that is marked."""
EXTERNAL = "external"


@dataclass(frozen=True)
class Comparison:
    """One rate on own and on external drafts.

    Attributes:
        group: Values that name the rate, without the source.
        own: On the model's own drafts.
        external: On the drafts of all other models together.
        relative: Their difference as a share of the external rate; None where it is undefined.
        differs: Whether it is noteworthy; None where a rate is undefined.
    """

    group: dict[str, str]
    own: Rate
    external: Rate
    relative: float | None
    differs: bool | None


def compare_sources(rows: pd.DataFrame, measure: Callable[[pd.DataFrame], list[Rate]]) -> list[Comparison]:
    """One measure on own drafts beside the same on external ones, wherever there are both.

    Args:
        rows: Rows of `continuations`.
        measure: Gives the rates of rows, for example `consistency_rates` with a seed.
    """
    pooled = rows.assign(source=rows["source"].where(rows["source"] == OWN, EXTERNAL))
    found: dict[tuple[tuple[str, str], ...], dict[str, Rate]] = {}
    for rate in measure(pooled):
        group = {name: value for name, value in rate.group.items() if name != "source"}
        found.setdefault(tuple(group.items()), {})[rate.group["source"]] = rate
    pairs = [(dict(group), pair[OWN], pair[EXTERNAL]) for group, pair in found.items() if len(pair) == 2]
    return [
        Comparison(
            group, own, other, relative_difference(own.estimate, other.estimate), differs(own.estimate, other.estimate)
        )
        for group, own, other in pairs
    ]


def relative_difference(own: Estimate, external: Estimate) -> float | None:
    """|own - external|/external; None where one of them is undefined or the external one is 0."""
    if own.value is None or not external.value:
        return None
    return abs(own.value - external.value) / abs(external.value)


def differs(own: Estimate, external: Estimate) -> bool | None:
    """Whether own and external drafts differ by more than a tenth of the external rate; None where one is undefined."""
    if own.value is None or external.value is None:
        return None
    relative = relative_difference(own, external)
    if relative is None:
        return own.value != 0
    # 55 against 50 is a tenth, not more, though their floats are a hair beyond.
    return relative > NOTEWORTHY + 1e-9
