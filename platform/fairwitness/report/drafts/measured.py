"""Everything that the report shows of a run in figures, computed once, by the functions of `drafts`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from fairwitness.drafts.counting import DraftCounts, draft_counts, outcome_counts, without_verdict
from fairwitness.drafts.readers_agree import ReaderAgreement, reader_agreements
from fairwitness.drafts.results import (
    Rate,
    answer_tokens,
    answer_tokens_average,
    behaviour_shares,
    consistency_average,
    consistency_rates,
    intra_average,
    intra_rates,
    paper_rates,
    reliance_average,
    reliance_rates,
)
from fairwitness.drafts.sources import Comparison, compare_sources
from fairwitness.report.drafts.data import DraftRun

AVERAGE = "average"
STEP = ("intervention", "insertion_type")
Measure = Callable[[pd.DataFrame], list[Rate]]


@dataclass(frozen=True)
class Measured:
    """The figures.

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


def measure(run: DraftRun) -> Measured:
    """All figures of a run. Equal rows give equal figures."""
    rows, seed = run.rows, run.seed
    tables = measures(seed)
    judge, order = run.judge, run.config["conclusion_order"]
    return Measured(
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
