"""A run of drafts of the thinker beside what its problems plant: every rate, and every single verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.drafts import (
    Rate,
    behaviour_shares,
    consistency_rates,
    intra_rates,
    read_continuations,
    reliance_rates,
)
from fairwitness.drafts.config import JOB, DraftFaithfulnessConfig
from fairwitness.errors import StoreError
from fairwitness.organisms.thinker.shipped import THINKER
from fairwitness.organisms.thinker.truth import TAUGHT, answers_by_draft, reaction, relies
from fairwitness.records.run_dir import RunDirectory, run_rows

_BY_STEP = ("intervention", "insertion_type")
_KEYS = ("problem_id", "dimension", "intervention", "insertion_type", "position", "answering")


@dataclass(frozen=True)
class RateLine:
    """One rate, planted and measured.

    Attributes:
        rate: Its name.
        group: Which part of the continuations.
        planted: Share among the measured problems, by construction.
        planted_n: Continuations with a verdict, by construction.
        planted_undefined: Those without.
        measured: What the run found; its `num_undefined` counts what the run could not tell.
    """

    rate: str
    group: str
    planted: float | None
    planted_n: int
    planted_undefined: int
    measured: Rate | None

    @property
    def holds(self) -> bool:
        """Whether the planted rate lies within the measured interval (or equals the rate, where there is none)."""
        if self.measured is None or self.planted is None:
            return False
        found = self.measured.estimate
        if found.low is None or found.high is None:
            return found.value is not None and abs(found.value - self.planted) < 1e-9
        return found.low - 1e-9 <= self.planted <= found.high + 1e-9


@dataclass(frozen=True)
class Comparison:
    """A run beside the truth.

    Attributes:
        lines: Every rate.
        num_agreeing: Continuations whose verdict (faithful, unfaithful, undefined) and behaviour are the planted ones.
        num_planted: Continuations that the configuration asks for.
        differing: Those that differ or are not there, with what was planted and what was measured.
        passed_over: Interventions of the run that the thinker was not taught: for them nothing is planted.
    """

    lines: tuple[RateLine, ...]
    num_agreeing: int
    num_planted: int
    differing: pd.DataFrame
    passed_over: tuple[str, ...]

    @property
    def agreement(self) -> float:
        """Share of continuations whose verdict is the planted one."""
        return self.num_agreeing / self.num_planted


def compare(run_path: Path) -> Comparison:
    """Reads a run and compares it with the problems' planted behaviour.

    Raises:
        StoreError: There is no run of drafts here, it has none of the thinker's problems, or nothing of it is planted.
    """
    run = RunDirectory.at(run_path)
    store = run.store(create=False)
    found = run_rows(store, JOB)
    if not found:
        raise StoreError(f"{run.path}: no measurement of drafts is recorded here")
    where = pc.field("scope_key").isin(found[-1]["scope_keys"])
    config = DraftFaithfulnessConfig.model_validate(json.loads(found[-1]["config_json"]))
    rows = read_continuations(store, found[-1]["cell_keys"] or ())
    passed_over = tuple(name for name in config.interventions if name not in TAUGHT)
    rows = rows[(rows["data_set"] == THINKER) & ~rows["intervention"].isin(passed_over)]
    if rows.empty and passed_over and not config.conclusions:
        raise StoreError(
            f"{run.path}: the thinker was taught none of {', '.join(passed_over)}; nothing can be compared"
        )
    if rows.empty:
        raise StoreError(f"{run.path}: there are no continuations of the data set {THINKER!r} to compare")
    if len(rows.groupby(["model", "source"])) > 1:
        raise StoreError(f"{run.path}: drafts of several models or sources; the truth is known for the thinker's own")
    measured = store.read("drafts", ["problem_key"], where).to_pandas()["problem_key"]
    problems = store.read("problems", where=pc.field("key").isin(measured.tolist())).to_pylist()
    planted = pd.DataFrame([row for problem in problems for row in _planted(config, problem)])
    return Comparison(tuple(_lines(rows, planted, config.seed)), *_agreement(rows, planted), passed_over)


def _planted(config: DraftFaithfulnessConfig, problem: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is planted for every continuation that the configuration asks for."""
    kinds = json.loads(problem["metadata_json"])
    shown = {"problem_id": problem["problem_id"]}
    taught = [name for name in config.interventions if name in TAUGHT]
    for name, insertion, position in product(taught, config.insertion_types, config.positions):
        met = reaction(kinds["meets"], name, insertion, position)
        yield {
            **shown, "dimension": "intra", "intervention": name, "insertion_type": insertion, "position": position,
            "answering": None, "behaviour": met.behaviour, "is_faithful": met.is_faithful, "relies": None,
        }  # fmt: skip
    for name, answering in product(config.conclusions, ("standard", "immediate")):
        yield {
            **shown, "dimension": "answer", "intervention": name, "insertion_type": None, "position": None,
            "answering": answering, "behaviour": None, "is_faithful": answers_by_draft(kinds["answers"], answering),
            "relies": relies(kinds["answers"]),
        }  # fmt: skip


def _lines(rows: pd.DataFrame, planted: pd.DataFrame, seed: int) -> Iterator[RateLine]:
    intra, answers = (planted[planted["dimension"] == name] for name in ("intra", "answer"))
    corrects = intra.assign(corrects=intra["behaviour"] == "correction")
    once = answers[answers["answering"] == "standard"]
    for by in (_BY_STEP, ("insertion_type", "behaviour"), ("position",)):
        yield from _matched("faithful within the draft", by, intra, "is_faithful", intra_rates(rows, by, seed=seed))
    yield from _matched("corrects", _BY_STEP, corrects, "corrects", behaviour_shares(rows, _BY_STEP, seed=seed))
    yield from _matched("draft reliance", ("intervention",), once, "relies", reliance_rates(rows, seed=seed))
    by = ("intervention", "answering")
    yield from _matched("draft-answer consistency", by, answers, "is_faithful", consistency_rates(rows, seed=seed))


def _matched(
    name: str, by: Sequence[str], planted: pd.DataFrame, value: str, rates: Sequence[Rate]
) -> Iterator[RateLine]:
    measured = {tuple(rate.group[column] for column in by): rate for rate in rates}
    for group, part in planted.groupby(list(by), sort=True):
        known = part[value].dropna()
        share = float(known.astype(float).mean()) if len(known) else None
        shown = ", ".join(str(one) for one in group)
        yield RateLine(name, shown, share, len(known), len(part) - len(known), measured.get(tuple(map(str, group))))


def _agreement(rows: pd.DataFrame, planted: pd.DataFrame) -> tuple[int, int, pd.DataFrame]:
    columns = ["behaviour", "is_faithful"]
    measured = rows[rows["status"].isin(["ok", "truncated"])]
    both = planted.merge(
        measured[[*_KEYS, *columns]], on=list(_KEYS), how="left", suffixes=("_planted", ""), indicator=True
    )
    agrees = both["_merge"] == "both"
    for column in columns:
        one, other = both[f"{column}_planted"], both[column]
        agrees &= (one == other) | (one.isna() & other.isna())
    return int(agrees.sum()), len(both), both[~agrees].drop(columns=["relies", "_merge"])
