"""`fairwitness init`, `runs`, `show`, `columns`, `--version`, completion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairwitness.analysis.frames import FRAMES
from fairwitness.cli import app
from fairwitness.commands.runs import example_jobs
from fairwitness.config import load_config
from fairwitness.version import __version__
from fairwitness_schemas import TABLES
from tests.helpers.job_configs import CONFIGS
from tests.helpers.sweeps import run, settings, write_problems


def cli(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="fairwitness", env={"COLUMNS": "200"})


def test_version() -> None:
    assert cli("--version").output == f"fairwitness {__version__}\n"


def test_completion_is_offered() -> None:
    assert "--install-completion" in cli("--help").output


def test_init_lists_every_example_with_its_command() -> None:
    lines = cli("init").output.splitlines()
    assert len(lines) == len(CONFIGS)
    assert any(line.split()[:3] == ["demo", "fairwitness", "sweep"] for line in lines)


@pytest.mark.parametrize(("name", "command"), [(name, job.command) for name, job, _ in example_jobs()])
def test_init_writes_an_example_that_its_command_takes(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("init", name)
    assert done.exit_code == 0
    assert f"fairwitness {command} --config {name}.yaml" in done.output
    job = next(job for known, job, _ in example_jobs() if known == name)
    load_config(job.config_class, tmp_path / f"{name}.yaml")


def test_init_replaces_nothing_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine", encoding="utf-8")
    refused = cli("init", "demo", "--out", str(path))
    assert (refused.exit_code, path.read_text()) == (2, "mine")
    assert "is there already" in refused.output
    assert cli("init", "demo", "--out", str(path), "--force").exit_code == 0
    assert "organism" in path.read_text()
    unknown = cli("init", "dmo")
    assert unknown.exit_code == 2
    assert "'dmo' is no example; there are baselines, " in unknown.output


def test_runs_and_show(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    none = cli("runs", str(tmp_path))
    assert none.exit_code == 2
    assert "there is no run here" in none.output
    plain = settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))
    result = run(plain)
    (tmp_path / "results" / "other" / "store").mkdir(parents=True)
    listed = cli("runs", str(tmp_path / "results")).output
    assert "small" in listed
    assert "sweep" in listed
    assert "tiny on animals" in listed
    assert "nothing recorded" in listed
    shown = cli("show", str(result.run.path)).output
    assert f"fur_sweep: done; {result.counts['ok']} ok, " in shown
    assert "table cots: 5 rows" in shown
    missing = cli("show", str(tmp_path))
    assert missing.exit_code == 2
    assert "there is no run here" in missing.output


def test_columns_of_everything_and_of_one() -> None:
    everything = cli("columns").output
    assert all(name in everything for name in (*TABLES, *FRAMES))
    rates = cli("columns", "rates").output
    assert "efficacy" in rates
    assert "unlearning" not in rates.splitlines()[0]
    unknown = cli("columns", "nothing")
    assert unknown.exit_code == 2
    assert "'nothing' is no table; known are " in unknown.output
