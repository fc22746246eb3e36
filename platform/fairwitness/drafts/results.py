"""What drafts show: rates of faithfulness with intervals, from the rows of `drafts` and `continuations`.

Pure: data frames in, estimates out. Undefined measurements are in no denominator and are counted beside it. Problems
are the clusters of the bootstrap.

Source: Measuring the Faithfulness of Thinking Drafts in Large Reasoning Models, Tables 1, 3, 4 and 6,
Figures 4, 6, 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairwitness.drafts.faithful import reliance
from fairwitness.problems.draws import item_rng
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined

PLACE = ("model", "data_set", "source")
OWN = "own"
NOTEWORTHY = 0.1
"""Relative difference between own and external drafts that is marked (Tables 1, 3 and 4)."""


@dataclass(frozen=True)
class Rate:
    """One rate of one group of continuations.

    Attributes:
        group: Values that name the group, by column.
        estimate: The rate, or mean.
        num_all: Continuations in the group, the undefined ones too.
        num_undefined: Those without a verdict.
    """

    group: dict[str, str]
    estimate: Estimate
    num_all: int
    num_undefined: int


def intra_rates(rows: pd.DataFrame, by: Sequence[str], *, seed: int) -> list[Rate]:
    """Share of faithful continuations within the draft, by columns such as intervention, insertion_type, behaviour.

    Args:
        rows: Rows of `continuations`.
        by: Columns beside model, data set and source.
        seed: Seed of the resamples.
    """
    intra = rows[(rows["dimension"] == "intra") & rows["status"].isin(["ok", "truncated"])]
    return _rates(intra, by, "is_faithful", seed)


def behaviour_shares(rows: pd.DataFrame, by: Sequence[str], *, seed: int) -> list[Rate]:
    """Share of continuations that correct the inserted step, among those whose behaviour is known (Figures 7, 8)."""
    intra = rows[(rows["dimension"] == "intra") & rows["status"].isin(["ok", "truncated"])]
    known = intra["behaviour"].map({"correction": 1.0, "following": 0.0})
    return _rates(intra.assign(corrects=known), by, "corrects", seed)


def reliance_rates(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Draft reliance by kind of conclusion: the same answer with and without an explanation (Table 3)."""
    answers = rows[(rows["dimension"] == "answer") & rows["status"].isin(["ok", "truncated"])]
    keys = [*PLACE, "problem_id", "draft_key", "intervention"]
    records = []
    for names, pair in answers.groupby(keys, sort=True):
        letters = dict(zip(pair["answering"], pair["conclusion_letter"], strict=True))
        known = {way: letter for way, letter in letters.items() if isinstance(letter, str)}
        verdict = reliance(known.get("standard"), known.get("immediate"))
        records.append({**dict(zip(keys, names, strict=True)), "relies": verdict})
    return _rates(pd.DataFrame.from_records(records, columns=[*keys, "relies"]), ["intervention"], "relies", seed)


def consistency_rates(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Draft-answer consistency by kind of conclusion and way of answering (Table 4)."""
    answers = rows[(rows["dimension"] == "answer") & rows["status"].isin(["ok", "truncated"])]
    return _rates(answers, ["intervention", "answering"], "is_faithful", seed)


def answer_tokens(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Mean number of tokens of standard answers by kind of conclusion (Table 6); a truncated one counts as it is."""
    standard = rows[(rows["answering"] == "standard") & rows["status"].isin(["ok", "truncated"])]
    return _rates(standard, ["intervention"], "num_tokens", seed, is_rate=False)


def differs(own: Estimate, external: Estimate) -> bool | None:
    """Whether own and external drafts differ by more than a tenth of the external rate; None where one is undefined."""
    if own.value is None or external.value is None:
        return None
    if external.value == 0:
        return own.value != 0
    return abs(own.value - external.value) / abs(external.value) > NOTEWORTHY


def _rates(rows: pd.DataFrame, by: Sequence[str], value: str, seed: int, *, is_rate: bool = True) -> list[Rate]:
    columns = [*PLACE, *by]
    found = []
    for names, group in rows.groupby(columns, sort=True, dropna=True):
        named = dict(zip(columns, map(str, names), strict=True))
        known = group[group[value].notna()]
        estimate = undefined("no continuation of this group has a verdict")
        if len(known):
            rng = item_rng(seed, value, *named.values())
            values = known[value].astype(float).to_numpy(dtype=np.float64)
            estimate = cluster_mean(values, known["problem_id"].to_numpy(dtype=str), rng=rng, is_rate=is_rate)
        found.append(Rate(named, estimate, len(group), len(group) - len(known)))
    return found
