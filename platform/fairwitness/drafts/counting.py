"""How many drafts and continuations there are, and what became of those without a verdict. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from fairwitness.drafts.results import PLACE, reliance_pairs

UNDEFINED = "undefined"
OUTCOMES = ("faithful", "unfaithful", UNDEFINED, "truncated", "skipped", "failed")


@dataclass(frozen=True)
class DraftCounts:
    """Drafts of one model, data set and source.

    Attributes:
        group: Model, data set and source.
        num_all: All of them.
        statuses: Number by status.
        irregular: Number by what is unusual about the tags; a draft may be in several.
        num_irregular: Drafts with anything unusual.
        finishes: Number by how they ended.
        num_other_answer: Usable drafts after which the model answers something else than the draft concludes.
        num_no_answer: Usable drafts after which no answer is found.
    """

    group: dict[str, str]
    num_all: int
    statuses: Mapping[str, int]
    irregular: Mapping[str, int]
    num_irregular: int
    finishes: Mapping[str, int]
    num_other_answer: int
    num_no_answer: int


def draft_counts(drafts: pd.DataFrame) -> list[DraftCounts]:
    """Counts per model, data set and source.

    Args:
        drafts: Rows of `drafts`.
    """
    found = []
    for names, group in drafts.groupby(list(PLACE), sort=True):
        kinds = [list(one) if one is not None else [] for one in group["irregular"]]
        usable = group[group["status"] == "ok"]
        answered = usable[usable["answer_letter"].notna()]
        found.append(
            DraftCounts(
                dict(zip(PLACE, map(str, names), strict=True)),
                len(group),
                _counted(group["status"]),
                dict(sorted(Counter(kind for one in kinds for kind in one).items())),
                sum(bool(one) for one in kinds),
                _counted(group["finish"].dropna()),
                int((answered["answer_letter"] != answered["conclusion_letter"]).sum()),
                len(usable) - len(answered),
            )
        )
    return found


def outcome(is_faithful: bool | None, status: str) -> str:
    """One of `OUTCOMES`: the verdict, or why there is none."""
    if status != "ok":
        return status
    return UNDEFINED if is_faithful is None else "faithful" if is_faithful else "unfaithful"


def with_outcomes(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `continuations` with a column `outcome`; for answers it is that of consistency."""
    pairs = zip(rows["is_faithful"], rows["status"], strict=True)
    return rows.assign(outcome=[outcome(None if pd.isna(value) else bool(value), status) for value, status in pairs])


def outcome_counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Number of continuations by outcome: a row per model, data set, source, intervention and type or way.

    Args:
        rows: Rows of `continuations`.

    Returns:
        Columns of the place, `intervention`, `insertion_type`, `answering`, and one per outcome.
    """
    columns = [*PLACE, "intervention", "insertion_type", "answering"]
    filled = with_outcomes(rows).fillna({"insertion_type": "", "answering": ""})
    records = [
        {**dict(zip(columns, names, strict=True)), "num_all": len(group)}
        | {name: int((group["outcome"] == name).sum()) for name in OUTCOMES}
        for names, group in filled.groupby(columns, sort=True)
    ]
    return pd.DataFrame.from_records(records, columns=[*columns, "num_all", *OUTCOMES])


def without_verdict(problems: pd.DataFrame, drafts: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Every item that is in no denominator, with its reason: refused problems, drafts, continuations, pairs of answers.

    Returns:
        Columns table, status, reason, model, data_set, source, problem_id, intervention, insertion_type, position,
        answering, key.
    """
    wanted = [
        *("table", "status", "reason", "model", "data_set", "source", "problem_id", "intervention", "insertion_type"),
        *("position", "answering", "key"),
    ]
    judged = with_outcomes(rows)
    lost = judged[~judged["outcome"].isin(["faithful", "unfaithful"])]
    pairs = reliance_pairs(rows)
    unpaired = pairs[pairs["relies"].isna()]
    parts = {
        "problems": problems[problems["status"] != "ok"],
        "drafts": drafts[drafts["status"] != "ok"],
        "continuations": lost.assign(status=lost["outcome"]),
        "reliance": unpaired.assign(
            status=UNDEFINED,
            reason=["no standard answer" if pd.isna(one) else "no immediate answer" for one in unpaired["standard"]],
            key=unpaired["draft_key"],
        ),
    }
    frames = [
        part.assign(table=name).reindex(columns=wanted).astype(object) for name, part in parts.items() if len(part)
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=wanted)


def _counted(values: pd.Series[str]) -> dict[str, int]:
    return {str(name): int(number) for name, number in sorted(Counter(values).items())}
