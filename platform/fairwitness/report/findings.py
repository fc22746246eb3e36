"""What there is to say of results that others published, where no unlearning came with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from fairwitness.analysis.faithfulness import CellFaithfulness
from fairwitness.analysis.health import Health
from fairwitness.analysis.judgements import JudgedCell
from fairwitness.analysis.panels import NO_UNLEARNING, Panel
from fairwitness.analysis.ratings import RatingSummary
from fairwitness.report.format import decimal, figure, percent, plural, rate
from fairwitness.report.truth import FF_HARD, STEPS_OF_ALL, STEPS_OF_FAITHFUL, Separation
from fairwitness.stats.bootstrap import Estimate
from fairwitness.stats.correlation import Correlation

LOW_LETTER_MASS = 0.5
"""Median letter mass below which the page warns."""
FEW_PROBLEMS = 30
"""Number of counted problems below which the page warns; the paper's rate selection uses as many (App. E.1)."""
_MAIN = {
    FF_HARD: "ff-hard tells faithful problems from unfaithful ones",
    STEPS_OF_FAITHFUL[1]: "ff-soft tells the step that states the fact in question from the one that states another",
    STEPS_OF_ALL[1]: "ff-soft tells the steps used for the answer from all others",
}


@dataclass(frozen=True)
class Finding:
    """A finding about one panel: its subject, sentences, and what makes them doubtful.

    `method` is empty for full FF2.
    """

    model: str
    data_set: str
    method: str
    sentences: tuple[str, ...]
    cautions: tuple[str, ...]


def finding(panel: Panel, found: Sequence[Separation], health: Health, published: Sequence[str] = ()) -> Finding:
    """What a reader should take away from one panel.

    Args:
        panel: The panel.
        found: How well scores recover a known truth.
        health: Its health.
        published: What there is to say of a panel of results of others without unlearning.
    """
    if panel.is_published:
        return Finding(panel.model, panel.data_set, "", (NO_UNLEARNING, *published), ())
    cautions = tuple(_cautions(health))
    cell = panel.chosen_cell
    if cell is None:
        sentences = [(panel.shown_cell and panel.no_rate_reason) or _why_nothing(panel)]
        return Finding(panel.model, panel.data_set, panel.shown_method, tuple(sentences), cautions)
    sentences = [_faithfulness(cell), _controls(cell)]
    sentences += [_separation(one) for one in found if one.auroc.value is not None and one.score in _MAIN]
    return Finding(panel.model, panel.data_set, panel.shown_method, tuple(sentences), cautions)


def _why_nothing(panel: Panel) -> str:
    """Why no rate has a measured efficacy and specificity."""
    steps = panel.steps
    if not len(steps):
        return "No step was unlearned: the job ended before that; start it again to go on."
    lost = steps[steps["status"] != "ok"]
    if len(lost) == len(steps):
        skipped = int((steps["status"] == "skipped").sum())
        parts = ((skipped, "was skipped" if skipped == 1 else "were skipped"), (len(steps) - skipped, "failed"))
        shown = " and ".join(f"{count} {what}" for count, what in parts if count)
        (reason, times), *_ = Counter(lost["reason"].fillna("no reason is recorded")).most_common(1)
        return f"No step was unlearned: of {plural(len(steps), 'task')} {shown}, {_how_often(times, lost)}: {reason}."
    asked = panel.cots["agree"].dropna()
    if not asked.any():
        return (
            f"Nothing can be said: of {plural(len(asked), 'problem')} none has the same direct and CoT answer, and "
            "only such problems count."
        )
    return panel.no_rate_reason or ""


def _how_often(times: int, lost: pd.DataFrame) -> str:
    return "all because" if times == len(lost) else f"most often ({times}) because"


def with_interval(estimate: Estimate) -> str:
    """A share in percent with its interval: `57.1% (95% interval 40.0 to 71.4)`."""
    if estimate.value is None:
        return f"undefined ({estimate.reason})"
    if estimate.low is None:
        return f"{percent(estimate.value)}% ({estimate.reason})"
    return f"{percent(estimate.value)}% (95% interval {percent(estimate.low)} to {percent(estimate.high)})"


def _cautions(health: Health) -> Iterator[str]:
    mass = health.direct_letter_mass.median
    if mass is not None and mass < LOW_LETTER_MASS:
        yield (
            f"Caution: half of the direct prompts leave the answer letters at most {figure(mass)} of the probability, "
            "so the answer distribution says little."
        )
    agreement = health.agreement
    if agreement.value is not None and agreement.value < 0.5:
        yield (
            f"Caution: direct and CoT answers agree on only {int(agreement.numerator)} of "
            f"{plural(int(agreement.denominator), 'problem')}; the figures describe those alone."
        )
    if health.is_near_chance:
        yield (
            f"Caution: of {plural(int(health.direct_accuracy.denominator), 'direct answer')} "
            f"{with_interval(health.direct_accuracy)} are right; guessing gives {percent(health.chance)}%, and a model "
            "that guesses has no reasoning to be faithful to."
        )
    if 0 < health.num_counted < FEW_PROBLEMS:
        yield (
            f"Caution: ff-hard counts only {plural(health.num_counted, 'problem')}; with fewer than {FEW_PROBLEMS} the "
            "figures are weak."
        )


def _faithfulness(cell: CellFaithfulness) -> str:
    hard = cell.ff_hard_any
    if hard.value is None:
        return f"At the chosen rate {rate(cell.lr)}, ff-hard is undefined: {hard.reason}."
    share = f"{int(hard.numerator)} of {plural(int(hard.denominator), 'problem')}"
    return (
        f"At the chosen rate {rate(cell.lr)}, unlearning one step of the CoT changed the answer in {share}: "
        f"ff-hard is {with_interval(hard)}."
    )


def _controls(cell: CellFaithfulness) -> str:
    return (
        f"Over {plural(cell.efficacy.num_clusters, 'problem')}, the unlearned step lost {with_interval(cell.efficacy)} "
        f"of its probability, and {with_interval(cell.specificity)} of the held-out answers stayed."
    )


def _separation(one: Separation) -> str:
    e = one.auroc
    size = f"{len(one.scores_positive)} against {len(one.scores_negative)}"
    interval = "no interval" if e.low is None else f"95% interval {decimal(e.low)} to {decimal(e.high)}"
    return f"Against the known truth, {_MAIN[one.score]}: AUROC {decimal(e.value)} ({interval}; {size})."


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
