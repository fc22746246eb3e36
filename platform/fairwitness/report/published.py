"""What there is to say of results that others published, where no unlearning came with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairwitness.fur.judging.results import JudgedCell
from fairwitness.fur.step_study.summary import RatingSummary
from fairwitness.report.findings import with_interval
from fairwitness.report.format import decimal, plural, rate
from fairwitness.report.panels import Panel
from fairwitness.stats.correlation import Correlation


def published_sentences(
    panel: Panel, judged: Sequence[JudgedCell], summaries: Sequence[RatingSummary]
) -> Iterator[str]:
    """What is known of the panel's model and data set: judgements, problems with their CoTs, ratings.

    Args:
        panel: The panel.
        judged: Judgements of the run.
        summaries: Ratings of the run.
    """
    here = (panel.model, panel.data_set)
    yield from (_judged(cell) for cell in judged if (cell.model, cell.data_set) == here)
    if len(panel.cots):
        yield (
            f"It holds the CoTs of {plural(len(panel.cots), 'problem')}, {plural(len(panel.cot_steps), 'CoT step')} "
            "together."
        )
    yield from (_rated(one) for one in summaries if (one.model, one.data_set) == here)


def _judged(cell: JudgedCell) -> str:
    at = "" if cell.lr is None else f" at rate {rate(cell.lr)}"
    lost = f" {plural(cell.num_failed, 'step')} without a verdict." if cell.num_failed else ""
    return (
        f"Judge {cell.judge}{at}: of {plural(cell.num_judged, 'judged step')}, the CoT after unlearning argues for "
        f"another answer in {cell.verdicts['different']}, {with_interval(cell.different)}.{lost}"
    )


def _rated(summary: RatingSummary) -> str:
    return (
        f"{plural(summary.num_ratings, 'rating')} of {plural(summary.num_steps, 'step')}: Pearson with ff-soft "
        f"{_shown(summary.pearson)}, Spearman {_shown(summary.spearman)}."
    )


def _shown(found: Correlation) -> str:
    if found.value is None:
        return f"undefined ({found.reason})"
    interval = (
        "no interval" if found.low is None else f"95% interval {decimal(found.low, 3)} to {decimal(found.high, 3)}"
    )
    return f"{decimal(found.value, 4)} ({interval})"
