"""`fairwitness paper` on a real small sweep, and with wrong words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.report.paper.build import EXHIBITS
from tests.helpers.commands import process_settings_restored
from tests.helpers.sweeps import RATES, run, settings, write_problems


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with process_settings_restored():
        yield


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    data = write_problems(folder / "animals.jsonl")
    measured = {"disagreeing": False, "cot_after": True}
    return run(settings(folder / "results", tiny_folder("llama"), data, measure=measured)).run.path


def invoke(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_real_sweep_becomes_tables_and_figures(sweep: Path, tmp_path: Path) -> None:
    result = invoke("paper", sweep, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"paper report: {(tmp_path / 'out' / 'paper.html').resolve()}"
    rates = pd.read_csv(tmp_path / "out" / "csv" / "table_8.csv")
    assert list(rates["lr"]) == list(RATES)
    shown = {path.stem for path in (tmp_path / "out" / "csv").iterdir()}
    missing = [line for line in result.output.splitlines() if ": not in these runs: " in line]
    assert len(shown) + len(missing) == len(EXHIBITS)


def test_table_8_is_what_the_report_says(sweep: Path, tmp_path: Path) -> None:
    assert invoke("report", sweep).exit_code == 0
    assert invoke("paper", sweep, "--out", tmp_path).exit_code == 0
    report, paper = (pd.read_csv(path) for path in (sweep / "csv" / "rates.csv", tmp_path / "csv" / "table_8.csv"))
    columns = [name for name in paper if name.startswith(("lr", "efficacy", "specificity", "ff_hard_any", "chosen"))]
    columns = [name for name in columns if not name.endswith("published")]
    pd.testing.assert_frame_equal(paper[columns], report[columns])


def test_without_a_run_or_a_folder(sweep: Path, tmp_path: Path) -> None:
    absent = invoke("paper", tmp_path / "absent", "--out", tmp_path / "out")
    assert absent.exit_code == 2
    assert f"error: {tmp_path / 'absent'}" in absent.output
    assert invoke("paper", sweep).exit_code == 2
    assert invoke("paper", "--out", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()
