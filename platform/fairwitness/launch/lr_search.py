"""`jobs/lr_search.py`: reads the configuration, searches, reports, and says which rate was selected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.faithfulness import ChosenRate
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.decisions import FAILED
from fairwitness.fur.search.job import SearchResult, run_search
from fairwitness.fur.search.outcome import SearchOutcome
from fairwitness.launch.common import LOADERS, ended, read_config, say, set_up, tracking_line
from fairwitness.records.job import Report
from fairwitness.report.build import build_report
from fairwitness.report.findings import with_interval
from fairwitness.report.format import plural, rate


def lr_search(config_path: Path, overrides: Sequence[str], *, pool: str | None = None, dry: bool = False) -> int:
    """Runs `jobs/lr_search.py`.

    Args:
        config_path: YAML file of a `LrSearchConfig`.
        overrides: `key=value` settings.
        pool: `ray` or `local` instead of what the configuration says.
        dry: Only say what every rate on every problem would take; a search takes at most that.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration or data, 3 no rate is feasible for some model
        and data set, 130 interrupted.
    """
    set_up()
    return ended(lambda: _lr_search(config_path, overrides, pool, dry))


def _lr_search(config_path: Path, overrides: Sequence[str], pool: str | None, dry: bool) -> int:
    config = read_config(LrSearchConfig, config_path, overrides, pool)
    if dry:
        for line in dry_run(config, loaders=LOADERS):
            say(line)
        say("this is what every rate on every problem takes; the search takes at most that")
        return 0
    result = run_search(config, loaders=LOADERS, report=_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _report(run_path: Path, outcomes: Sequence[SearchOutcome]) -> Report:
    paths = build_report(run_path)
    lines = tuple(line for outcome in outcomes for line in search_lines(outcome))
    feasible = all(isinstance(outcome.choice, ChosenRate) for outcome in outcomes)
    return Report((paths.html, *paths.csv.values(), *paths.plots.values()), lines, feasible)


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


def _closing_lines(result: SearchResult) -> list[str]:
    counts = result.counts
    lines = [
        *result.report.findings,
        f"tasks: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed; "
        f"refused records: {counts['refused']}",
        f"report: {result.report.files[0].resolve()}",
    ]
    if any(isinstance(outcome.choice, ChosenRate) for outcome in result.outcomes):
        lines.append(f"a sweep takes the selected rates with `lr: selected` and `lr_search: {result.run.path}`")
    if result.tracking_uri:
        lines.append(tracking_line(result.tracking_uri))
    if counts["failed"]:
        lines.append("some tasks failed; the report names them, and the same command tries them again")
    return lines
