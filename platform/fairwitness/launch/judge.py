"""`jobs/fur_judge.py`: reads the configuration, judges CoTs written after unlearning, and says what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.config import load_config
from fairwitness.fur.judging.config import FurJudgeConfig
from fairwitness.fur.judging.job import JudgeResult, run_judge
from fairwitness.judges.config import LocalModelConfig
from fairwitness.launch.common import LOADERS, ended, say, set_up, tracking_line, with_organism
from fairwitness.launch.sweep import make_report
from fairwitness.report.judgements import sentence


def fur_judge(config_path: Path, overrides: Sequence[str]) -> int:
    """Runs `jobs/fur_judge.py`.

    Args:
        config_path: YAML file of a `FurJudgeConfig`.
        overrides: `key=value` settings.

    Returns:
        The exit code: 0 done, 1 some items failed, 2 bad configuration or data, 3 no rate is feasible,
        130 interrupted.
    """
    set_up()
    return ended(lambda: _fur_judge(config_path, overrides))


def _fur_judge(config_path: Path, overrides: Sequence[str]) -> int:
    config = load_config(FurJudgeConfig, config_path, overrides)
    if isinstance(config.judge, LocalModelConfig):
        judge = config.judge.model_copy(update={"model": with_organism(config.judge.model)})
        config = config.model_copy(update={"judge": judge})
    result = run_judge(config, loaders=LOADERS, report=make_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _closing_lines(result: JudgeResult) -> list[str]:
    counts = result.counts
    lines = [
        *(sentence(cell) for cell in result.cells),
        *result.notes,
        f"judgements: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed",
        f"report: {result.report.files[0].resolve()}",
    ]
    if result.tracking_uri:
        lines.append(tracking_line(result.tracking_uri))
    if counts["failed"]:
        lines.append("some judgements failed; the report says why, and the same command asks for them again")
    return lines
