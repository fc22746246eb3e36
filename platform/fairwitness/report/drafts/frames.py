"""The figures as tables for CSV files: unrounded, with n, intervals and the reason where one is undefined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fairwitness.drafts.counting import DraftCounts, with_outcomes
from fairwitness.drafts.readers_agree import ReaderAgreement
from fairwitness.drafts.results import Rate
from fairwitness.drafts.sources import Comparison
from fairwitness.report.drafts.data import DraftRun
from fairwitness.report.drafts.measured import Measured
from fairwitness.stats.bootstrap import Estimate

_LISTS = ("irregular", "expected_letters")


def frames(run: DraftRun, found: Measured) -> dict[str, pd.DataFrame]:
    """Every table, by the name of its file; those without a row are left out."""
    made = {
        "table_1": rates_frame(found.intra),
        "table_1_positions": rates_frame(found.positions),
        "table_1_behaviours": rates_frame(found.behaviours),
        "table_1_all": rates_frame(found.crossed),
        "table_3": rates_frame(found.reliance),
        "table_4": rates_frame(found.consistency),
        "table_6": rates_frame(found.tokens),
        "figures_4_6": rates_frame(found.figure_4),
        "figures_7_8": rates_frame(found.corrects),
        "sources": sources_frame(found.sources),
        "agreement": agreement_frame(found.agreements or []),
        "outcomes": found.outcomes,
        "draft_counts": _counts_frame(found.drafts),
        "without_verdict": found.lost,
        "drafts": _plain(run.drafts),
        "items": _plain(with_outcomes(run.rows)),
    }
    return {name: frame for name, frame in made.items() if len(frame)}


def rates_frame(rates: Sequence[Rate]) -> pd.DataFrame:
    """A row per rate: its group, then its figures."""
    return pd.DataFrame.from_records([{**rate.group, **_figures(rate)} for rate in rates])


def sources_frame(sources: Mapping[str, Sequence[Comparison]]) -> pd.DataFrame:
    """A row per rate that there is on own and on external drafts."""
    records = [
        {"measure": name, **one.group}
        | {f"own_{key}": value for key, value in _figures(one.own).items()}
        | {f"external_{key}": value for key, value in _figures(one.external).items()}
        | {"relative_difference": one.relative, "over_a_tenth": one.differs}
        for name, comparisons in sources.items()
        for one in comparisons
    ]
    return pd.DataFrame.from_records(records)


def agreement_frame(agreements: Sequence[ReaderAgreement]) -> pd.DataFrame:
    """A row per question and group."""
    records = [
        {
            **one.group,
            "question": one.pair.kind,
            "first": one.pair.judges[0],
            "second": one.pair.judges[1],
            "n": one.pair.agreement.num_items,
            "num_first_only": one.pair.num_only[0],
            "num_second_only": one.pair.num_only[1],
            "equal": one.pair.agreement.observed,
            "equal_by_chance": one.pair.agreement.expected,
            "kappa": one.pair.agreement.kappa.value,
            "kappa_low": one.pair.agreement.kappa.low,
            "kappa_high": one.pair.agreement.kappa.high,
            "num_problems": one.pair.agreement.kappa.num_clusters,
            "reason": one.pair.agreement.kappa.reason,
        }
        for one in agreements
    ]
    return pd.DataFrame.from_records(records)


def _counts_frame(counts: Sequence[DraftCounts]) -> pd.DataFrame:
    records = [
        {**one.group, "num_all": one.num_all}
        | {f"num_{name}": one.statuses.get(name, 0) for name in ("ok", "skipped", "failed")}
        | {"num_irregular": one.num_irregular}
        | {f"num_{name}": number for name, number in one.irregular.items()}
        | {f"num_ended_by_{name}": number for name, number in one.finishes.items()}
        | {"num_other_answer": one.num_other_answer, "num_no_answer": one.num_no_answer}
        for one in counts
    ]
    frame = pd.DataFrame.from_records(records)
    numbers = [name for name in frame.columns if name.startswith("num_")]
    return frame.fillna(dict.fromkeys(numbers, 0)).astype(dict.fromkeys(numbers, int))


def _figures(rate: Rate) -> dict[str, Any]:
    estimate: Estimate = rate.estimate
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "interval": estimate.interval,
        "n": rate.num_known,
        "num_all": rate.num_all,
        "num_undefined": rate.num_undefined,
        "num_truncated": rate.num_truncated,
        "num_problems": estimate.num_clusters,
        "reason": estimate.reason,
    }


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    shown = frame.copy()
    for name in (name for name in _LISTS if name in shown):
        shown[name] = [None if one is None else " ".join(one) for one in shown[name]]
    return shown
