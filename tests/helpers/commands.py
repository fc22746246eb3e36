"""The user's command, in this process: a configuration file, an exit code, and what was printed."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairwitness.commands.start import start
from fairwitness.jobs import JOBS


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed to stdout and stderr."""

    code: int
    out: str
    err: str

    def refused(self) -> str:
        """The message of a command that was refused: exit code 2, one message, no traceback."""
        assert self.code == 2, (self.code, self.err)
        assert "Traceback" not in self.out + self.err
        assert self.err.count("error: ") == 1
        return self.err.partition("error: ")[2].strip()


class Command:
    """Runs a job on plain settings as a command does, without another process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], job: str = "fur_sweep") -> None:
        self._folder, self._capsys, self._job = folder, capsys, job

    def __call__(self, plain: Mapping[str, Any] | str, *overrides: str, **options: Any) -> Ended:
        path = self._folder / "job.yaml"
        text = plain if isinstance(plain, str) else yaml.safe_dump(dict(plain), sort_keys=False)
        path.write_text(text, encoding="utf-8")
        self._capsys.readouterr()
        code = start(JOBS[self._job], path, overrides, **options)
        return Ended(code, *self._capsys.readouterr())


@contextmanager
def process_settings_restored() -> Iterator[None]:
    """Takes back what `set_up` does to the process."""
    logger = logging.getLogger("fairwitness")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)
