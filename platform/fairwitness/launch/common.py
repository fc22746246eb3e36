"""What the entry points in jobs/ and the commands share: set-up, exit codes, settings that name the organism."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairwitness.config import Config, read_settings, validate
from fairwitness.errors import FairwitnessError
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import EXIT_INTERRUPTED
from fairwitness.lm.config import ModelConfig
from fairwitness.organisms.shipped import ORGANISM, load_organism_problems, organism_path
from fairwitness.organisms.thinker.shipped import THINKER, load_thinker_problems, thinker_path
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.redact import redact_text

LOADERS: Mapping[str, Loader] = {ORGANISM: load_organism_problems, THINKER: load_thinker_problems}
"""Data sets beyond those of `fairwitness.problems`."""

SHIPPED: Mapping[str, Callable[[], Path]] = {ORGANISM: organism_path, THINKER: thinker_path}
"""Models that come with the package, by their alias."""


def set_up() -> None:
    """Quiet logging to stderr, no telemetry, and SIGTERM treated as an interruption that can be resumed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("fairwitness").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _interrupt)
    # While Python ends it would search the million objects of torch, MLflow and Ray for garbage several times: seconds
    # after the last line, half a minute on a busy machine.
    atexit.register(gc.freeze)


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
    """Prints a line for the user, at once, also into a pipe."""
    stream = stream or sys.stdout
    stream.write(text + "\n")
    stream.flush()


def tracking_of(run_path: Path, *, uri: str | None, experiment: str | None) -> TrackingConfig:
    """Tracking settings of a finished run, with what the user gives instead.

    Raises:
        StoreError: There is no run at this path.
        ConfigError: Its configuration cannot be read.
    """
    run = RunDirectory.at(run_path)
    own = read_settings(run.config_path).get("tracking") if run.config_path.exists() else None
    given = {name: value for name, value in (("uri", uri), ("experiment", experiment)) if value is not None}
    found = validate(TrackingConfig, {} if own is None else own, f"{run.config_path}: tracking")
    return validate(TrackingConfig, {**found.model_dump(), **given, "enabled": True}, "options")


def with_organism(settings: Any) -> Any:
    """The same settings, with the folder of a shipped model wherever its alias names a model."""
    if isinstance(settings, tuple):
        return tuple(map(with_organism, settings))
    if not isinstance(settings, Config):
        return settings
    if isinstance(settings, ModelConfig) and settings.model in SHIPPED:
        folder = SHIPPED[settings.model]()
        return settings.model_copy(update={"model": str(folder), "name": settings.name or settings.model})
    return settings.model_copy(update={name: new for name, old in settings if (new := with_organism(old)) != old})


def tracking_line(uri: str) -> str:
    """Where MLflow has a run: the address of its server, or the command that shows a database. No credentials."""
    uri = redact_text(uri)
    if uri.startswith("http"):
        return f"MLflow: {uri}"
    # Not joined as a path: that would make one slash of the four in the address of a SQLite file.
    command = [str(Path(sys.executable).parent / "mlflow"), "ui", "--backend-store-uri", uri]
    return f"MLflow UI: {shlex.join(command)}"


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
