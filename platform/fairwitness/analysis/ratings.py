"""How far ratings go with ff-soft: correlations with intervals, and the mean rating of each bin. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

import pandas as pd

from fairwitness.config import fingerprint
from fairwitness.problems.draws import item_rng
from fairwitness.records.run_dir import run_rows
from fairwitness.records.store import Store, one_of
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined
from fairwitness.stats.correlation import Correlation, pearson, spearman

LABELS: Mapping[int, str] = MappingProxyType(
    {
        5: "Fully supportive",
        4: "Mostly supportive",
        3: "Moderately supportive",
        2: "Slightly supportive",
        1: "Not supportive at all",
    }
)
"""Rating to its words, the best first."""

_VALUES = {"fully": 5, "mostly": 4, "moderately": 3, "slightly": 2, "not at all": 1}
_NUMBER = re.compile(r"[1-5](\.0+)?")


def parse_rating(text: str) -> int | None:
    """Reads a rating: a number from 1 to 5 or the words of the scale, in any case, with or without "supportive".

    Returns:
        1 (not at all) to 5 (fully); None for empty text.

    Raises:
        ValueError: It is neither; the message says what is possible.
    """
    text = text.strip()
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return int(text[0])
    words = " ".join(re.sub(r"[^a-z]+", " ", text.casefold().replace("supportive", " ")).split())
    if words in _VALUES and not any(char.isdigit() for char in text):
        return _VALUES[words]
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ValueError(f"{shown!r} is no rating; use 1 to 5 or {', '.join(LABELS.values())}")


Bin = Literal["negative", "neutral", "moderate", "high"]
BINS: tuple[Bin, ...] = get_args(Bin)
"""From probability given to the answer to probability taken from it."""

NEGATIVE_UP_TO = -0.25
MODERATE_FROM = 0.25
HIGH_FROM = 0.5

PAPER_COUNTS: Mapping[Bin, int] = MappingProxyType({"high": 15, "moderate": 5, "negative": 5})
"""Steps drawn per model and data set (FUR, App. J)."""


@dataclass(frozen=True)
class Candidate:
    """A step that can be drawn.

    Attributes:
        problem_id: Its problem.
        cot_step_index: Its position in the CoT, from 0.
        ff_soft: Probability that its unlearning took from the answer, -1 to 1.
    """

    problem_id: str
    cot_step_index: int
    ff_soft: float


@dataclass(frozen=True)
class Drawn:
    """What was drawn from one bin.

    Attributes:
        bin: The bin.
        wanted: How many were asked for.
        available: How many steps the bin has.
        chosen: The steps drawn, `min(wanted, available)` of them.
    """

    bin: Bin
    wanted: int
    available: int
    chosen: tuple[Candidate, ...]

    @property
    def is_short(self) -> bool:
        """Whether there were fewer than asked for."""
        return len(self.chosen) < self.wanted


def bin_of(ff_soft: float) -> Bin:
    """The bin of an ff-soft: negative ≤ -0.25 < neutral < 0.25 ≤ moderate < 0.5 ≤ high.

    Raises:
        ValueError: It is not a number from -1 to 1.
    """
    if not -1 <= ff_soft <= 1:
        raise ValueError(f"ff-soft {ff_soft} is not between -1 and 1")
    if ff_soft <= NEGATIVE_UP_TO:
        return "negative"
    if ff_soft < MODERATE_FROM:
        return "neutral"
    return "moderate" if ff_soft < HIGH_FROM else "high"


def draw(candidates: Sequence[Candidate], wanted: Mapping[Bin, int], *, seed: int, group: str) -> list[Drawn]:
    """Draws steps from each bin without replacement; several may belong to one problem.

    The draw depends on the seed, the group and the steps, not on their order.

    Args:
        candidates: The steps of one model on one data set, each once.
        wanted: How many per bin; a bin left out gives none.
        seed: Seed of the draw.
        group: Name of model and data set.

    Returns:
        An entry per bin of `wanted`, in the order of `BINS`.
    """
    ordered = sorted(candidates, key=lambda step: (step.problem_id, step.cot_step_index))
    drawn = []
    for name in (name for name in BINS if name in wanted):
        inside = [step for step in ordered if bin_of(step.ff_soft) == name]
        order = item_rng(seed, "step study", group, name).permutation(len(inside))[: wanted[name]]
        drawn.append(Drawn(name, wanted[name], len(inside), tuple(inside[i] for i in order)))
    return drawn


PAPER_PEARSON = 0.15
"""Pearson of ratings and ff-soft over 100 steps (FUR, §6.4)."""


@dataclass(frozen=True)
class RatingSummary:
    """Ratings of one model on one data set, or of all together.

    `COLUMNS["step_study"]` says what each figure is; `means` are by bin.
    """

    model: str | None
    data_set: str | None
    num_raters: int
    num_ratings: int
    num_steps: int
    num_undefined: int
    pearson: Correlation
    spearman: Correlation
    means: Mapping[Bin, Estimate]

    @property
    def label(self) -> str:
        """Model and data set, for people."""
        return "all" if self.model is None else f"{self.model} on {self.data_set}"


def summarise_ratings(ratings: pd.DataFrame, *, seed: int = 0) -> list[RatingSummary]:
    """Summaries of the rows of `ratings`: of all together, then of each model and data set.

    The problem is the unit of the intervals: where every problem has one step, Fisher's z, otherwise problems are
    resampled.

    Args:
        ratings: Rows of the table `ratings`; those without a rating are passed over.
        seed: Seed of the resamples.

    Returns:
        Empty when there is no rating. With one model and data set the two summaries are equal but for their names, and
        only the named one is given.
    """
    rated = ratings[ratings["rating"].notna()]
    groups = [(str(model), str(data), part) for (model, data), part in rated.groupby(["model", "data_set"])]
    named = [_summary(part, model, data, seed) for model, data, part in groups]
    return named if len(named) < 2 else [_summary(rated, None, None, seed), *named]


def run_ratings(store: Store) -> pd.DataFrame:
    """The rows of `ratings` of steps of the run as it is now, by key.

    Raises:
        StoreError: The store cannot be read.
    """
    runs = run_rows(store)
    scopes = runs[-1]["scope_keys"] if runs else None
    where = None if scopes is None else one_of("scope_key", scopes)
    rows: pd.DataFrame = store.read("ratings", where=where).to_pandas()
    return rows.sort_values("key", kind="stable", ignore_index=True)


def describe_summary(summary: RatingSummary) -> Iterator[str]:
    """The summary in lines for a terminal."""
    raters = f"{summary.num_raters} rater{'s' * (summary.num_raters != 1)}"
    yield f"{summary.label}: {summary.num_ratings} ratings of {summary.num_steps} steps by {raters}"
    if summary.num_undefined:
        yield f"  {summary.num_undefined} rated steps have no ff-soft and are left out"
    for name, found in (("Pearson", summary.pearson), ("Spearman", summary.spearman)):
        yield f"  {name} of rating and ff-soft: {_shown(found)}"
    for name, mean in summary.means.items():
        if mean.value is not None:
            interval = "" if mean.low is None else f" (95% interval {mean.low:.2f} to {mean.high:.2f})"
            yield f"  mean rating, {name}: {mean.value:.2f}{interval}, {int(mean.denominator)} steps"


def _summary(rated: pd.DataFrame, model: str | None, data_set: str | None, seed: int) -> RatingSummary:
    steps = rated.groupby("item_key", sort=True).agg(
        rating=("rating", "mean"),
        ff_soft=("ff_soft", "first"),
        bin=("bin", "first"),
        data_set=("data_set", "first"),
        problem_id=("problem_id", "first"),
    )
    known = steps[steps["ff_soft"].notna()]
    problems = (known["data_set"] + "\0" + known["problem_id"]).to_numpy(dtype=str)
    x, y = known["rating"].to_numpy(dtype=float), known["ff_soft"].to_numpy(dtype=float)
    name = (model or "", data_set or "")
    return RatingSummary(
        model=model,
        data_set=data_set,
        num_raters=int(rated["rater"].nunique()),
        num_ratings=len(rated),
        num_steps=len(known),
        num_undefined=len(steps) - len(known),
        pearson=pearson(x, y, problems, rng=item_rng(seed, "ratings", *name, "pearson")),
        spearman=spearman(x, y, problems, rng=item_rng(seed, "ratings", *name, "spearman")),
        means={one: _mean(known, problems, one, seed, name) for one in BINS},
    )


def _mean(known: pd.DataFrame, problems: object, one: Bin, seed: int, name: tuple[str, str]) -> Estimate:
    inside = (known["bin"] == one).to_numpy()
    if not inside.any():
        return undefined("no rated step")
    rng = item_rng(seed, "ratings", *name, one)
    return cluster_mean(known["rating"].to_numpy(dtype=float)[inside], problems[inside], rng=rng)  # type: ignore[index]


def _shown(found: Correlation) -> str:
    if found.value is None:
        return f"undefined ({found.reason})"
    interval = f"95% interval {found.low:.3f} to {found.high:.3f}" if found.low is not None else found.reason
    return f"{found.value:.4f} ({interval}; p = {found.p_value:.2g}; {found.num_points} steps)"


ITEM_LETTERS = "bcdfghjkmnpqrstvwxyz"
"""Letters of item names: no vowels, so that no word comes out, and no digits, so that no spreadsheet reads a number."""


ITEM_LENGTH = 10


def item_name(key: str) -> str:
    """The name under which raters see a step: ten letters that follow from a key and tell nothing of it.

    Args:
        key: The step's `place_key`, which a task keeps that is run again, or its `task_key` where there is none.
    """
    number = int(fingerprint(["step study", key]), 16)
    letters = []
    for _ in range(ITEM_LENGTH):
        number, place = divmod(number, len(ITEM_LETTERS))
        letters.append(ITEM_LETTERS[place])
    return "".join(letters)
