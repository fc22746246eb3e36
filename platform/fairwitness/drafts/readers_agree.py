"""How far a judge and the rules agree on what continuations say. Pure.

The judge reads the behaviour of every continuation; a conclusion it reads only where `conclusion_order` lets it. Where
the rules come first, it is asked about nothing but texts in which they find no conclusion: that is no sample of all
texts, and agreement on it would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fairwitness.drafts.results import MADE, PLACE
from fairwitness.judges.agreements import PairAgreement, pair_agreements

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
