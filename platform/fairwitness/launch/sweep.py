"""`jobs/fur_sweep.py`: reads the configuration, runs the sweep, reports, and says what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.sweep import run_sweep
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.launch.common import LOADERS, ended, read_config, say, set_up, tracking_line
from fairwitness.records.job import JobResult, Report
from fairwitness.report.build import build_report


def fur_sweep(config_path: Path, overrides: Sequence[str], *, pool: str | None = None, dry: bool = False) -> int:
    """Runs `jobs/fur_sweep.py`.

    Args:
        config_path: YAML file of a `FurSweepConfig`.
        overrides: `key=value` settings.
        pool: `ray` or `local` instead of what the configuration says.
        dry: Only say what would be run, and estimate memory and time.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration or data, 3 no rate is feasible for any
        model and data set, 130 interrupted.
    """
    set_up()
    return ended(lambda: _fur_sweep(config_path, overrides, pool, dry))


def read_sweep(config_path: Path, overrides: Sequence[str], pool: str | None) -> FurSweepConfig:
    """The configuration with overrides, and the organism's alias replaced by its folder.

    Raises:
        ConfigError: See `load_config`.
    """
    return read_config(FurSweepConfig, config_path, overrides, pool)


def _fur_sweep(config_path: Path, overrides: Sequence[str], pool: str | None, dry: bool) -> int:
    config = read_sweep(config_path, overrides, pool)
    if dry:
        for line in dry_run(config, loaders=LOADERS):
            say(line)
        return 0
    result = run_sweep(config, loaders=LOADERS, report=make_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def make_report(run_path: Path) -> Report:
    """Makes the report of a run directory."""
    paths = build_report(run_path)
    return Report(
        (paths.html, *paths.csv.values(), *paths.plots.values()), paths.findings, paths.is_feasible, paths.cautions
    )


def _closing_lines(result: JobResult) -> list[str]:
    counts = result.counts
    lines = [
        *result.report.findings,
        f"tasks: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed; "
        f"refused records: {counts['refused']}",
        f"report: {result.report.files[0].resolve()}",
    ]
    if result.tracking_uri:
        lines.append(tracking_line(result.tracking_uri))
    if counts["failed"]:
        lines.append("some tasks failed; the report names them, and the same command tries them again")
    return lines
