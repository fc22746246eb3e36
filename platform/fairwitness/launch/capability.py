"""`jobs/fur_capability.py`: general capability of a finished sweep, before and after unlearning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.config import load_config
from fairwitness.fur.capability.config import FurCapabilityConfig
from fairwitness.fur.capability.job import CapabilityResult, capability_dry_run, run_capability
from fairwitness.launch.common import LOADERS, ended, say, set_up
from fairwitness.launch.sweep import make_report
from fairwitness.report.capability import capability_lines


def fur_capability(config_path: Path, overrides: Sequence[str], *, pool: str | None = None, dry: bool = False) -> int:
    """Runs `jobs/fur_capability.py`.

    Args:
        config_path: YAML file of a `FurCapabilityConfig`.
        overrides: `key=value` settings.
        pool: `ray` or `local` instead of what the configuration says.
        dry: Only say what would be run and what it costs.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration or data, 3 no rate is feasible for any model and
        data set, 130 interrupted.
    """
    set_up()
    return ended(lambda: _fur_capability(config_path, overrides, pool, dry))


def _fur_capability(config_path: Path, overrides: Sequence[str], pool: str | None, dry: bool) -> int:
    extra = [f"pool.kind={pool}"] if pool else []
    config = load_config(FurCapabilityConfig, config_path, [*overrides, *extra])
    if dry:
        for line in capability_dry_run(config, loaders=LOADERS):
            say(line)
        return 0
    result = run_capability(config, loaders=LOADERS, report=make_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _closing_lines(result: CapabilityResult) -> list[str]:
    counts = result.counts
    lines = [
        *capability_lines(result.cells),
        *(f"{label}: not measured. {reason}" for label, reason in result.reasons.items()),
        f"capability: {counts['ok']} steps ok, {counts['skipped']} skipped, {counts['failed']} failed; "
        f"refused records: {counts['refused']}",
        f"report: {result.report.files[0].resolve()}",
    ]
    if counts["failed"]:
        lines.append("some steps failed; the table `capability` names them, and the same command tries them again")
    return lines
