"""`jobs/lr_search.py`: searches for the learning rate of each model and data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fairwitness.analysis.faithfulness import FAILED, ChosenRate
from fairwitness.experiment.job import Report
from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.job import SearchResult, run_search
from fairwitness.fur.search.outcome import SearchOutcome
from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job, make_report
from fairwitness.report.findings import with_interval
from fairwitness.report.format import plural, rate


def _dry_run(config: LrSearchConfig) -> Iterator[str]:
    yield from dry_run(config, loaders=LOADERS)
    yield "this is what every rate on every problem takes; the search takes at most that"


def _report(run_path: Path, outcomes: Sequence[SearchOutcome]) -> Report:
    lines = tuple(line for outcome in outcomes for line in search_lines(outcome))
    feasible = all(isinstance(outcome.choice, ChosenRate) for outcome in outcomes)
    return make_report(run_path)._replace(findings=lines, is_feasible=feasible, cautions=())


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


def _findings(result: SearchResult) -> list[str]:
    lines = list(result.report.findings)
    if any(isinstance(outcome.choice, ChosenRate) for outcome in result.outcomes):
        lines.append(f"a sweep takes the selected rates with `lr: selected` and `lr_search: {result.run.path}`")
    return lines


lr_search = Job(
    help="Finds the rate of highest efficacy among those that keep specificity.",
    config=LrSearchConfig,
    run=partial(run_search, loaders=LOADERS, report=_report),
    counts="tasks: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
    if_failed="some tasks failed; the report names them, and the same command tries them again",
    findings=_findings,
    dry_run=_dry_run,
    dry_run_help="Say what a grid would take, at most.",
)
"""Exit code 3: no rate is feasible for some model and data set."""
