"""For tests that give the user's command bad input: the command, its settings, and the sweep as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.experiment.job import JobResult
from tests.helpers.commands import Command, process_settings_restored
from tests.helpers.sweeps import run, settings, write_problems


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """The user's command, in this process."""
    with process_settings_restored():
        yield Command(tmp_path, capsys)


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    """Plain settings of a small sweep whose data file is `animals.jsonl` in `tmp_path`."""
    return settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> JobResult:
    """The same sweep where nothing goes wrong."""
    folder = tmp_path_factory.mktemp("clean")
    return run(settings(folder, tiny_folder("llama"), write_problems(folder / "animals.jsonl")))
