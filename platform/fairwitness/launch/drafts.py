"""`jobs/draft_faithfulness.py`: reads the configuration, measures drafts, reports, and says what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.config import load_config
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.workflow import run_drafts
from fairwitness.launch.common import LOADERS, ended, say, set_up, tracking_line, with_organism
from fairwitness.records.job import JobResult, Report
from fairwitness.report.drafts.build import build_draft_report


def draft_faithfulness(config_path: Path, overrides: Sequence[str], *, pool: str | None = None) -> int:
    """Runs `jobs/draft_faithfulness.py`.

    Args:
        config_path: YAML file of a `DraftFaithfulnessConfig`.
        overrides: `key=value` settings.
        pool: `ray` or `local` instead of what the configuration says.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration or data, 130 interrupted.
    """
    set_up()
    return ended(lambda: _run(read_drafts_config(config_path, overrides, pool)))


def read_drafts_config(config_path: Path, overrides: Sequence[str], pool: str | None) -> DraftFaithfulnessConfig:
    """The configuration with overrides, and the organism's alias replaced by its folder.

    Raises:
        ConfigError: See `load_config`.
    """
    extra = [f"pool.kind={pool}"] if pool else []
    config = load_config(DraftFaithfulnessConfig, config_path, [*overrides, *extra])
    return config.model_copy(update={"models": tuple(with_organism(model) for model in config.models)})


def _run(config: DraftFaithfulnessConfig) -> int:
    result = run_drafts(config, loaders=LOADERS, report=_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _report(run_path: Path) -> Report:
    paths = build_draft_report(run_path)
    return Report((paths.html, *paths.csv.values()), paths.findings)


def _closing_lines(result: JobResult) -> list[str]:
    counts = result.counts
    lines = [
        *result.report.findings,
        f"continuations and drafts: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed; "
        f"refused records: {counts['refused']}",
        f"report: {result.report.files[0].resolve()}",
    ]
    if result.tracking_uri:
        lines.append(tracking_line(result.tracking_uri))
    if counts["failed"]:
        lines.append("some items failed; the report names them, and the same command tries them again")
    return lines
