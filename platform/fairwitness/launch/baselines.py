"""`jobs/fur_baselines.py`: reads the configuration, measures the baselines, reports, and says what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairwitness.config import load_config
from fairwitness.fur.baselines.config import FurBaselinesConfig
from fairwitness.fur.baselines.job import run_baselines
from fairwitness.fur.baselines.writers import Rule
from fairwitness.launch.common import LOADERS, ended, say, set_up, tracking_line
from fairwitness.organisms.rewrites import rewrite
from fairwitness.organisms.shipped import ORGANISM
from fairwitness.records.job import JobResult, Report
from fairwitness.records.keys import code_revision
from fairwitness.report.baselines import baseline_lines
from fairwitness.report.build import build_report

RULES: Mapping[str, Rule] = {ORGANISM: Rule(ORGANISM, code_revision(("organisms",)), rewrite)}
"""Rules that write mistakes and paraphrases for a made-up world."""


def fur_baselines(config_path: Path, overrides: Sequence[str], *, pool: str | None = None) -> int:
    """Runs `jobs/fur_baselines.py`.

    Args:
        config_path: YAML file of a `FurBaselinesConfig`.
        overrides: `key=value` settings.
        pool: `ray` or `local` instead of what the configuration, or else the sweep, says.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration, data or run, 130 interrupted.
    """
    set_up()
    return ended(lambda: _fur_baselines(config_path, overrides, pool))


def _fur_baselines(config_path: Path, overrides: Sequence[str], pool: str | None) -> int:
    extra = [f"pool.kind={pool}"] if pool else []
    config = load_config(FurBaselinesConfig, config_path, [*overrides, *extra])
    result = run_baselines(config, loaders=LOADERS, rules=RULES, report=_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _report(run_path: Path) -> Report:
    paths = build_report(run_path)
    lines = baseline_lines(run_path)
    return Report((paths.html, *paths.csv.values(), *paths.plots.values()), lines)


def _closing_lines(result: JobResult) -> list[str]:
    counts = result.counts
    lines = [
        *result.report.findings,
        f"measurements: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed",
        f"report: {result.report.files[0].resolve()}",
    ]
    if result.tracking_uri:
        lines.append(tracking_line(result.tracking_uri))
    if counts["failed"]:
        lines.append("some measurements failed; the same command tries them again")
    return lines
