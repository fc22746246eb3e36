"""What the entry points in jobs/ share: read the configuration, run, report, and end with the right exit code."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairwitness.config import Config, load_config, parse_yaml, validate
from fairwitness.errors import FairwitnessError
from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.study import Loader
from fairwitness.fur.sweep import EXIT_INTERRUPTED, Report, SweepResult, run_sweep
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.lm.config import ModelConfig
from fairwitness.organisms.shipped import ORGANISM, load_organism_problems, organism_path
from fairwitness.records.redact import redact_text
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.tracker import TrackingConfig
from fairwitness.report.build import build_report

LOADERS: Mapping[str, Loader] = {ORGANISM: load_organism_problems}
"""Data sets beyond those of `fairwitness.problems`."""


JOB_CONFIGS: Mapping[str, type[Config]] = {"fur_sweep": FurSweepConfig}
"""The configuration class of each job in jobs/."""


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


def set_up() -> None:
    """Quiet logging to stderr, no telemetry, and SIGTERM treated as an interruption that can be resumed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("fairwitness").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _interrupt)


def ended(action: Callable[[], int]) -> int:
    """The exit code of an action; an expected error is one clear message, not a traceback."""
    try:
        return action()
    except FairwitnessError as error:
        say(f"error: {error}", stream=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on where it stopped", stream=sys.stderr)
        return EXIT_INTERRUPTED


def say(text: str, *, stream: Any = None) -> None:
    """Prints a line for the user."""
    (stream or sys.stdout).write(text + "\n")


def read_sweep(config_path: Path, overrides: Sequence[str], pool: str | None) -> FurSweepConfig:
    """The configuration with overrides, and the organism's alias replaced by its folder.

    Raises:
        ConfigError: See `load_config`.
    """
    extra = [f"pool.kind={pool}"] if pool else []
    config = load_config(FurSweepConfig, config_path, [*overrides, *extra])
    models = tuple(_resolved(model) for model in config.models)
    return config.model_copy(update={"models": models})


def tracking_of(run_path: Path, *, uri: str | None, experiment: str | None) -> TrackingConfig:
    """Tracking settings of a finished run, with what the user gives instead.

    Raises:
        StoreError: There is no run at this path.
        ConfigError: Its configuration cannot be read.
    """
    run = RunDirectory.at(run_path)
    own: dict[str, Any] = {}
    if run.config_path.exists():
        own = (parse_yaml(run.config_path.read_text(encoding="utf-8")) or {}).get("tracking", {})
    given = {name: value for name, value in (("uri", uri), ("experiment", experiment)) if value is not None}
    return validate(TrackingConfig, {**own, **given, "enabled": True}, str(run.config_path))


def _resolved(model: ModelConfig) -> ModelConfig:
    if model.model != ORGANISM:
        return model
    return model.model_copy(update={"model": str(organism_path()), "name": model.name or ORGANISM})


def _fur_sweep(config_path: Path, overrides: Sequence[str], pool: str | None, dry: bool) -> int:
    config = read_sweep(config_path, overrides, pool)
    if dry:
        for line in dry_run(config, loaders=LOADERS):
            say(line)
        return 0
    result = run_sweep(config, loaders=LOADERS, report=_report)
    for line in _closing_lines(result):
        say(line)
    return result.exit_code


def _report(run_path: Path) -> Report:
    paths = build_report(run_path)
    return Report((paths.html, *paths.csv.values(), *paths.plots.values()), paths.findings, paths.is_feasible)


def _closing_lines(result: SweepResult) -> list[str]:
    counts = result.counts
    lines = [
        *result.report.findings,
        f"tasks: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed; "
        f"refused records: {counts['refused']}",
        f"report: {result.report.files[0].resolve()}",
    ]
    if result.tracking_uri:
        lines.append(_tracking_line(redact_text(result.tracking_uri)))
    if counts["failed"]:
        lines.append("some tasks failed; the report names them, and the same command tries them again")
    return lines


def _tracking_line(uri: str) -> str:
    if uri.startswith("http"):
        return f"MLflow: {uri}"
    # Not joined as a path: that would make one slash of the four in the address of a SQLite file.
    command = [str(Path(sys.executable).parent / "mlflow"), "ui", "--backend-store-uri", uri]
    return f"MLflow UI: {shlex.join(command)}"


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
