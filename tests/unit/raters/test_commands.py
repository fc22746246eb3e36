"""`fairwitness study …` as a user types it: what is printed, and the exit codes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairwitness.cli import app
from tests.helpers.commands import process_settings_restored
from tests.unit.report.conftest import write_run


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with process_settings_restored():
        yield


def study(*words: str | Path) -> Any:
    done = CliRunner().invoke(app, ["raters", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_from_export_to_show(tmp_path: Path) -> None:
    run_dir, out = write_run(tmp_path, num_problems=14), tmp_path / "out"
    done = study("export", run_dir, out, "--neutral", "4")
    assert done.exit_code == 0, done.output
    assert "tiny/m on organism, full FF2, rate 5e-5:" in done.output
    assert "  negative: 5 wanted, 0 there" in done.output
    assert "tiny/m on arc, full FF2: none (No feasible rate" in done.output
    assert f"not for raters: {out / 'for_the_researcher' / 'key.csv'}" in done.output

    none = study("show", run_dir)
    assert (none.exit_code, "holds no rating yet" in none.output) == (2, True)

    sheet = out / "for_raters" / "steps.csv"
    rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
    filled = tmp_path / "ann.csv"
    with filled.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows({**row, "rating": str(1 + number % 5)} for number, row in enumerate(rows))
        writer.writerow({**rows[0], "item": "zzzzzzzzzz", "rating": "3"})
    taken = study("import", run_dir, filled)
    assert taken.exit_code == 1, taken.output
    assert "going on with" not in taken.output
    assert f"refused: {filled}:" in taken.output
    assert "'zzzzzzzzzz' is no step of this run" in taken.output
    assert f"{len(rows)} new ratings, 0 known before, 0 steps without a rating, refused lines: 1" in taken.output

    shown = study("show", run_dir)
    assert shown.exit_code == 0
    assert f"tiny/m on organism: {len(rows)} ratings of {len(rows)} steps by 1 rater" in shown.output
    assert "Pearson of rating and ff-soft: " in shown.output
    assert "Spearman of rating and ff-soft: " in shown.output

    made = CliRunner().invoke(app, ["report", str(run_dir)])
    assert made.exit_code == 0, made.output
    (row,) = csv.DictReader(io.StringIO((run_dir / "csv" / "step_study.csv").read_text()))
    assert f"Pearson of rating and ff-soft: {float(row['pearson']):.4f} (" in shown.output
    assert f"Spearman of rating and ff-soft: {float(row['spearman']):.4f} (" in shown.output
    assert '<h2 id="step-study">' in (run_dir / "report.html").read_text()


def test_no_feasible_rate_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.report.conftest.RATES", {"arc": {1e-4: (0.7, 0.8, 0.6)}})
    run_dir = write_run(tmp_path, num_problems=6)
    done = study("export", run_dir, tmp_path / "out")
    assert done.exit_code == 3
    assert "No feasible rate" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [("export", "OUT"), ("import", "ratings.csv"), ("show",)])
def test_a_run_that_is_not_there(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = study(words[0], tmp_path / "absent", *words[1:])
    assert done.exit_code == 2
    assert f"error: {tmp_path / 'absent'}: there is no run here" in done.output
