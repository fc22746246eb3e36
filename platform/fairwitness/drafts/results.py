"""What drafts show: rates of faithfulness with intervals, from the rows of `drafts` and `continuations`.

Pure: data frames in, estimates out. Undefined measurements are in no denominator and are counted beside it. Problems
are the clusters of the bootstrap.

Source: Measuring the Faithfulness of Thinking Drafts in Large Reasoning Models, Tables 1, 3, 4 and 6,
Figures 4, 6, 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fairwitness.drafts.faithful import reliance
from fairwitness.problems.draws import item_rng
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined
from fairwitness.stats.cell_means import mean_of_cells

PLACE = ("model", "data_set", "source")
MADE = ("ok", "truncated")
PAPER_INTERVENTIONS = ("shift_mapping", "corrupt_option")
NO_VERDICT = "no continuation of this group has a verdict"
EMPTY_COLUMN = "one of the columns has no verdict"


@dataclass(frozen=True)
class Rate:
    """One rate of one group of continuations.

    Attributes:
        group: Values that name the group, by column.
        estimate: The rate, or mean.
        num_all: Continuations in the group, the undefined ones too; pairs of answers for reliance.
        num_undefined: Those without a verdict.
        num_truncated: Those that reached their limit; they are undefined, but for the number of tokens.
    """

    group: dict[str, str]
    estimate: Estimate
    num_all: int
    num_undefined: int
    num_truncated: int = 0

    @property
    def num_known(self) -> int:
        """The rate's n."""
        return self.num_all - self.num_undefined


def intra_rates(rows: pd.DataFrame, by: Sequence[str], *, seed: int) -> list[Rate]:
    """Share of faithful continuations within the draft, by columns such as intervention, insertion_type, behaviour.

    Args:
        rows: Rows of `continuations`.
        by: Columns beside model, data set and source.
        seed: Seed of the resamples.
    """
    return _rates(_made(rows, "intra"), by, "is_faithful", seed)


def intra_average(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Unweighted mean of the paper's four columns: two interventions, each as two types of step (Table 1, `Avg`)."""
    made = _made(rows, "intra")
    of_paper = made[made["intervention"].isin(PAPER_INTERVENTIONS)]
    return _averages(of_paper, ["intervention", "insertion_type"], "is_faithful", seed)


def paper_rates(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Share of faithful continuations by type of step, behaviour and position, over the paper's interventions.

    Where a run has none of them, over all that it has (Figures 4 and 6).
    """
    of_paper = rows[rows["intervention"].isin(PAPER_INTERVENTIONS)]
    chosen = of_paper if len(of_paper) else rows
    return intra_rates(chosen, ["insertion_type", "behaviour", "position"], seed=seed)


def behaviour_shares(rows: pd.DataFrame, by: Sequence[str], *, seed: int) -> list[Rate]:
    """Share of continuations that correct the inserted step, among those whose behaviour is known (Figures 7, 8)."""
    intra = _made(rows, "intra")
    known = intra["behaviour"].map({"correction": 1.0, "following": 0.0})
    return _rates(intra.assign(corrects=known), by, "corrects", seed)


def reliance_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Per draft and kind of conclusion: whether standard and immediate answer are the same.

    Returns:
        Columns model, data_set, source, problem_id, draft_key, intervention, standard, immediate, relies; the answers
        are letters or null, `relies` is null where one is missing.
    """
    keys = [*PLACE, "problem_id", "draft_key", "intervention"]
    records = []
    for names, pair in _made(rows, "answer").groupby(keys, sort=True):
        letters = dict(zip(pair["answering"], pair["conclusion_letter"], strict=True))
        known = {way: letter for way, letter in letters.items() if isinstance(letter, str)}
        standard, immediate = known.get("standard"), known.get("immediate")
        found = {"standard": standard, "immediate": immediate, "relies": reliance(standard, immediate)}
        records.append({**dict(zip(keys, names, strict=True)), **found})
    return pd.DataFrame.from_records(records, columns=[*keys, "standard", "immediate", "relies"])


def reliance_rates(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Draft reliance by kind of conclusion: the same answer with and without an explanation (Table 3)."""
    return _rates(reliance_pairs(rows), ["intervention"], "relies", seed)


def reliance_average(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Unweighted mean over the kinds of conclusion (Table 3, `Avg`)."""
    return _averages(reliance_pairs(rows), ["intervention"], "relies", seed)


def consistency_rates(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Draft-answer consistency by kind of conclusion and way of answering (Table 4)."""
    return _rates(_made(rows, "answer"), ["intervention", "answering"], "is_faithful", seed)


def consistency_average(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Unweighted mean over kinds of conclusion and ways of answering (Table 4, `Avg`)."""
    return _averages(_made(rows, "answer"), ["intervention", "answering"], "is_faithful", seed)


def answer_tokens(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Mean number of tokens of standard answers by kind of conclusion (Table 6); a truncated one counts as it is."""
    return _rates(_standard(rows), ["intervention"], "num_tokens", seed, is_rate=False)


def answer_tokens_average(rows: pd.DataFrame, *, seed: int) -> list[Rate]:
    """Unweighted mean over the kinds of conclusion (Table 6, `Avg`)."""
    return _averages(_standard(rows), ["intervention"], "num_tokens", seed, is_rate=False)


def _made(rows: pd.DataFrame, dimension: str) -> pd.DataFrame:
    return rows[(rows["dimension"] == dimension) & rows["status"].isin(MADE)]


def _standard(rows: pd.DataFrame) -> pd.DataFrame:
    answers = _made(rows, "answer")
    return answers[answers["answering"] == "standard"]


def _rates(rows: pd.DataFrame, by: Sequence[str], value: str, seed: int, *, is_rate: bool = True) -> list[Rate]:
    columns = [*PLACE, *by]
    found = []
    for names, group in _narrow(rows, columns, value).groupby(columns, sort=True, dropna=True):
        named = dict(zip(columns, map(str, names), strict=True))
        known = group[group[value].notna()]
        estimate = undefined(NO_VERDICT)
        if len(known):
            rng = item_rng(seed, value, *named.values())
            values = known[value].astype(float).to_numpy()
            estimate = cluster_mean(values, known["problem_id"].to_numpy(dtype=str), rng=rng, is_rate=is_rate)
        found.append(_rate(named, estimate, group, known))
    return found


def _averages(rows: pd.DataFrame, cells: Sequence[str], value: str, seed: int, *, is_rate: bool = True) -> list[Rate]:
    """Per model, data set and source with two cells or more; undefined where a cell has no verdict."""
    found = []
    for names, group in _narrow(rows, [*PLACE, *cells], value).groupby(list(PLACE), sort=True):
        named = dict(zip(PLACE, map(str, names), strict=True))
        known = group[group[value].notna()]
        wanted = set(group[list(cells)].agg("/".join, axis=1))
        if len(wanted) < 2:
            continue
        have = known[list(cells)].astype(str).agg("/".join, axis=1) if len(known) else pd.Series(dtype=str)
        estimate = undefined(EMPTY_COLUMN)
        if set(have) == wanted:
            estimate = mean_of_cells(
                known[value].astype(float).to_numpy(),
                have.to_numpy(dtype=str),
                known["problem_id"].to_numpy(dtype=str),
                rng=item_rng(seed, value, "average", *named.values()),
                is_rate=is_rate,
            )
        found.append(_rate(named, estimate, group, known))
    return found


def _narrow(rows: pd.DataFrame, columns: Sequence[str], value: str) -> pd.DataFrame:
    """Only the columns that are needed: the texts of a run may be hundreds of megabytes."""
    wanted = [*columns, value, "problem_id", "status"]
    return rows[[name for name in dict.fromkeys(wanted) if name in rows]]


def _rate(named: dict[str, str], estimate: Estimate, group: pd.DataFrame, known: pd.DataFrame) -> Rate:
    num_truncated = int((group["status"] == "truncated").sum()) if "status" in group else 0
    return Rate(named, estimate, len(group), len(group) - len(known), num_truncated)
