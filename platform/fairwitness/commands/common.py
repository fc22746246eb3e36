"""What all commands share: set-up, exit codes, and what is said to the user."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairwitness.errors import FairwitnessError
from fairwitness.redact import redact_text

EXIT_INTERRUPTED = 130

RunPath = Annotated[Path, typer.Argument(help="Run directory, for example results/demo.", metavar="RUN")]


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
