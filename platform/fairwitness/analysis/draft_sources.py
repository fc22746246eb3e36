"""A model's own drafts beside those of other models. Pure.

Source: Measuring the Faithfulness of Thinking Drafts in Large Reasoning Models, Tables 1, 3 and 4, where the drafts of
all other models are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from fairwitness.analysis.drafts import MADE, PLACE, Rate
from fairwitness.judges.agreement import PairAgreement, pair_agreements
from fairwitness.stats.bootstrap import Estimate
from fairwitness_schemas.drafts import OWN

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
    parts = []
    for kind in kinds:
        for key, name in ((RULES, RULES), (JUDGE, judge)):
            known = rows[rows[f"{kind}_{key}"].notna()]
            parts.append(
                pd.DataFrame(
                    {
                        "kind": kind,
                        "judge": name,
                        "judge_key": key,
                        "item_key": known["key"],
                        "verdict": known[f"{kind}_{key}"],
                        "data_set": known["data_set"],
                        "problem_id": known["problem_id"],
                        "status": "ok",
                    }
                )
            )
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
    return [
        Comparison(
            dict(group),
            pair[OWN],
            pair[EXTERNAL],
            relative_difference(pair[OWN].estimate, pair[EXTERNAL].estimate),
            differs(pair[OWN].estimate, pair[EXTERNAL].estimate),
        )
        for group, pair in found.items()
        if len(pair) == 2
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
