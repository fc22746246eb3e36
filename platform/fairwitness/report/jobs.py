"""The report of each job, and what it says in the terminal when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairwitness.analysis.faithfulness import FAILED, ChosenRate
from fairwitness.experiment.job import Report
from fairwitness.report.build import build_report
from fairwitness.report.drafts.items import MAX_ITEMS
from fairwitness.report.drafts.page import build_draft_report
from fairwitness.report.files import ReportPaths
from fairwitness.report.findings import with_interval
from fairwitness.report.followups import baseline_lines, capability_lines, sentence
from fairwitness.report.format import plural, rate

if TYPE_CHECKING:
    from fairwitness.drafts.measure import DraftFaithfulness
    from fairwitness.followups.baselines.measure import FurBaselines
    from fairwitness.followups.capability.measure import FurCapability
    from fairwitness.followups.judging.measure import FurJudge
    from fairwitness.fur.search.job import LrSearch
    from fairwitness.fur.search.outcome import SearchOutcome
    from fairwitness.fur.sweep import FurSweep


def run_report(run_path: Path) -> Report:
    """The report of a run that unlearned."""
    return _report(build_report(run_path))


def drafts_report(run_path: Path, *, max_items: int | None = None) -> Report:
    """The report of a run of drafts.

    Args:
        run_path: The run directory.
        max_items: Most continuations shown in full; None for the usual number.
    """
    return _report(build_draft_report(run_path, max_items=MAX_ITEMS if max_items is None else max_items))


def _report(made: ReportPaths) -> Report:
    files = (made.html, *made.csv.values(), *made.plots.values())
    return Report(files, made.findings, made.is_feasible, made.cautions)


def drafts_job_report(measure: DraftFaithfulness) -> Report:
    """Rates of faithfulness, a line per model, data set and source."""
    return drafts_report(measure.run.path)


def sweep_report(measure: FurSweep) -> Report:
    """Exit code 3: no rate is feasible for any model and data set."""
    return run_report(measure.run.path)


def search_report(measure: LrSearch) -> Report:
    """Exit code 3: no rate is feasible for some model and data set."""
    lines = [line for outcome in measure.outcomes for line in search_lines(outcome)]
    chosen = [isinstance(outcome.choice, ChosenRate) for outcome in measure.outcomes]
    if any(chosen):
        lines.append(f"a sweep takes the selected rates with `lr: selected` and `lr_search: {measure.run.path}`")
    return run_report(measure.run.path)._replace(findings=tuple(lines), is_feasible=all(chosen), cautions=())


def search_lines(outcome: SearchOutcome) -> list[str]:
    """What a search found for one model and data set, in sentences."""
    label, choice = outcome.study.label, outcome.choice
    if isinstance(choice, ChosenRate):
        cell = choice.cell
        lines = [
            f"{label}: selected rate {rate(cell.lr)}: efficacy {with_interval(cell.efficacy)}, specificity "
            f"{with_interval(cell.specificity)}, over {plural(cell.efficacy.num_clusters, 'problem')}"
        ]
    else:
        lines = [f"{label}: {choice.reason}"]
    lines += [
        f"{label}: rate {rate(one.cell.lr)} is never selected: {one.evidence.failure}"
        for one in outcome.tried
        if one.decision == FAILED
    ]
    if outcome.is_at_the_end:
        lines.append(f"{label}: that is the highest rate of the search; a higher one may be better")
    lines.append(
        f"{label}: {plural(len(outcome.tried), 'rate')} tried with {plural(outcome.num_tasks, 'task')}; a grid of all "
        f"{len(outcome.study.rates)} rates takes {outcome.num_grid_tasks}"
    )
    return lines


def judge_report(measure: FurJudge) -> Report:
    """Exit code 3: `lr: selected`, and no rate is feasible (raised before)."""
    found = run_report(measure.run.path)
    return found._replace(findings=(*map(sentence, measure.judged), *measure.notes), is_feasible=True)


def baselines_report(measure: FurBaselines) -> Report:
    """The baselines beside ff-hard, a line each."""
    found = run_report(measure.run.path)
    return found._replace(findings=baseline_lines(measure.run.path), is_feasible=True, cautions=())


def capability_report(measure: FurCapability) -> Report:
    """Exit code 3: no rate is feasible for any model and data set."""
    reasons = (f"{label}: not measured. {reason}" for label, reason in measure.reasons.items())
    found = run_report(measure.run.path)
    is_feasible = any(plan.lr is not None for plan in measure.plans)
    return found._replace(findings=(*capability_lines(measure.measured), *reasons), is_feasible=is_feasible)
