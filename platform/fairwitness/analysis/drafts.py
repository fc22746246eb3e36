"""The continuations that a run has now: those of its present settings, one for each place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fairwitness.problems.draws import item_rng
from fairwitness.records.store import Store, one_of
from fairwitness.stats.bootstrap import Estimate, cluster_mean, mean_of_cells, undefined
from fairwitness_schemas import TABLES

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


_PLACE = ["draft_key", "cell_key", "position", "answering"]
_ORDER = {
    "dimension": {"intra": 0, "answer": 1},
    "intervention": {"shift_mapping": 0, "corrupt_option": 1, "direct": 6, "plausible": 7},
    "insertion_type": {"continue": 0, "backtrack": 1},
    "position": {"initial": 0, "middle": 1, "end": 2},
    "answering": {"standard": 0, "immediate": 1},
}
"""How the paper orders them."""
_TEXTS = ("inserted_text", "continuation_text")
_COLUMNS = [name for name in TABLES["continuations"].schema.names if name != "continuation_ids"]


def read_continuations(
    store: Store, cell_keys: Sequence[str], draft_keys: Sequence[str] | None = None, *, with_texts: bool = True
) -> pd.DataFrame:
    """Rows of `continuations`, without token ids, in the order of the paper.

    Rows measured under other limits, readers or writers stay in the store under other cell keys. Where a writer first
    gave nothing and later a text, the row that was made counts.

    Args:
        store: The run's store.
        cell_keys: The cells wanted.
        draft_keys: The drafts wanted; None for all.
        with_texts: Whether what was inserted and what was written are wanted too.

    Raises:
        StoreError: The store cannot be read.
    """
    columns = [name for name in _COLUMNS if with_texts or name not in _TEXTS]
    where = one_of("cell_key", cell_keys)
    where = where if draft_keys is None else where & one_of("draft_key", draft_keys)
    rows = store.read("continuations", columns, where).to_pandas()
    rank = (~rows["status"].isin(MADE)).astype(int)
    order = [*_PLACE, "rank", "key"]
    kept = rows.assign(rank=rank).sort_values(order, kind="stable").drop_duplicates(_PLACE).drop(columns="rank")
    names = [*PLACE, "problem_id", *(f"_{name}" for name in _ORDER), "intervention", "key"]
    ranked = kept.assign(**{f"_{name}": kept[name].map(ranks).fillna(5) for name, ranks in _ORDER.items()})
    ordered: pd.DataFrame = ranked.sort_values(names, kind="stable", ignore_index=True)
    return ordered[columns]


def reliance(standard: str | None, immediate: str | None) -> bool | None:
    """δ_reliance: the answer is the same with and without an explanation; None where one is missing."""
    return None if standard is None or immediate is None else standard == immediate
