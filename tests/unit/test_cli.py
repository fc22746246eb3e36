"""`fairwitness …` on a finished run, on nothing, and with wrong words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from fairwitness import cli
from fairwitness.cli import app
from fairwitness.fur.config import FurSweepConfig
from fairwitness.records.run_dir import RunDirectory
from tests.helpers.commands import process_settings_restored
from tests.helpers.sweeps import rows_of, run, settings, write_problems


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with process_settings_restored():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    data = write_problems(folder / "animals.jsonl")
    return run(settings(folder / "results", tiny_folder("llama"), data, rates=[1e-3])).run.path


def invoke(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_report_is_remade(finished: Path) -> None:
    result = invoke("report", finished)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == f"report: {(finished / 'report.html').resolve()}"
    first = (finished / "report.html").read_bytes()
    assert b"tiny" in first
    invoke("report", finished)
    assert (finished / "report.html").read_bytes() == first


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_export_writes_every_table(finished: Path, tmp_path: Path, format_: str) -> None:
    result = invoke("export", finished, tmp_path / "out", "--format", format_)
    assert result.exit_code == 0
    paths = {path.stem: path for path in (tmp_path / "out").iterdir()}
    assert paths.keys() == {"problems", "cots", "cot_steps", "unlearning", "runs"}
    assert sorted(result.output.split()) == sorted(str(path) for path in paths.values())
    read = pd.read_csv if format_ == "csv" else pd.read_parquet
    expected = rows_of(finished / "store")
    assert len(read(paths["unlearning"])) == len(expected)
    assert set(read(paths["unlearning"])["key"]) == {row["key"] for row in expected}


@pytest.mark.slow
def test_track_in_a_file(finished: Path, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    first, second = (invoke("track", finished, "--uri", uri, "--experiment", "mine") for _ in range(2))
    assert first.exit_code == second.exit_code == 0
    assert first.output.startswith("MLflow run: ")
    assert first.output == second.output
    from mlflow import MlflowClient

    (found,) = MlflowClient(tracking_uri=uri).search_experiments(filter_string="name = 'mine'")
    runs = MlflowClient(tracking_uri=uri).search_runs([found.experiment_id])
    assert len(runs) == 2


@pytest.mark.parametrize("words", [("report",), ("track",), ("export", "--format", "csv")])
def test_run_that_is_not_there(tmp_path: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    extra = [tmp_path / "out"] if words[0] == "export" else []
    result = invoke(words[0], tmp_path / "absent", *extra, *words[1:])
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'absent'}" in result.output
    assert "Traceback" not in result.output


def test_track_while_a_job_writes(finished: Path, tmp_path: Path) -> None:
    with RunDirectory.at(finished).lock():
        result = invoke("track", finished, "--uri", f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert result.exit_code == 2
    assert "a job is writing this run" in result.output


def test_schema_is_that_of_the_job() -> None:
    result = invoke("schema")
    assert result.exit_code == 0
    schema = json.loads(result.output)
    assert schema.keys() >= {"properties", "required"}
    assert schema["properties"].keys() == FurSweepConfig.model_fields.keys()
    assert schema["properties"]["rates"]["description"] == "Learning rates, each above 0."


def test_unknown_job_and_unknown_format(finished: Path, tmp_path: Path) -> None:
    result = invoke("schema", "furr_sweep")
    assert result.exit_code == 2
    assert "'furr_sweep' is no job; known are fur_sweep" in " ".join(result.output.replace("│", " ").split())
    assert invoke("export", finished, tmp_path / "out", "--format", "xml").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_organism_recipe_that_is_refused(tmp_path: Path) -> None:
    result = invoke("organism", "train", "--out", tmp_path / "model", "--set", "no_such_key=1")
    assert result.exit_code == 2
    assert "unknown key 'no_such_key'" in result.output
    assert not (tmp_path / "model").exists()


def test_main_is_the_console_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["fairwitness", "--help"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("report", "track", "export", "schema", "organism"))
