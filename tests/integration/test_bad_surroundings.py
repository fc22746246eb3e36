"""What a user gets when disk, servers or another job stand in the way: one clear message, and nothing lost.

- unwritable output: test_output_that_cannot_be_written
- second job on the same run: test_second_job_on_the_same_run
- disk full: test_disk_full_while_measuring, test_disk_full_while_reporting
- MLflow server down: test_mlflow_server_down; a server that answers: test_mlflow_server.py
- Ray away, port of another server: test_ray_that_is_not_there, test_port_of_another_server
- Ray's usual ports in use, actor killed: tests/invariant/test_ways_of_running.py, test_ray_pool.py
- driver killed and restarted, interrupted: test_resume.py
"""

from __future__ import annotations

import errno
import http.server
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.experiment.job import JobResult
from fairwitness.records import parts
from fairwitness.records.run_dir import RunDirectory
from fairwitness.report import files
from tests.helpers.commands import Command
from tests.helpers.sweeps import RATES, rows_of, store_of


@pytest.mark.parametrize("place", ["results", "results/small", "results/small/store"])
def test_output_that_cannot_be_written(command: Command, plain: dict[str, Any], tmp_path: Path, place: str) -> None:
    blocked = tmp_path / place
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file where a folder should be", encoding="utf-8")
    found = command(plain).refused()
    assert str(blocked) in found
    assert "cannot be written" in found


def test_second_job_on_the_same_run(command: Command, plain: dict[str, Any]) -> None:
    with RunDirectory(plain["output"]["dir"], "small").lock():
        found = command(plain).refused()
    assert "another job writes this run (process " in found
    assert "choose another name" in found


def fill_disk(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Every part of this table ends half-written, as on a full disk."""
    real = parts._write_parquet

    def write(path: Path, spec: Any, pieces: Any) -> None:
        if spec.name == table:
            path.write_bytes(b"PAR1 half of a file")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, spec, pieces)

    monkeypatch.setattr(parts, "_write_parquet", write)


@pytest.mark.parametrize("table", ["runs", "unlearning"])
def test_disk_full_while_measuring(
    command: Command, plain: dict[str, Any], clean: JobResult, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    with monkeypatch.context() as patch:
        fill_disk(patch, table)
        found = command(plain).refused()
    assert str(store_of(plain) / table) in found
    assert "No space left on device" in found
    assert "what is already stored is kept and not run again" in found
    # Nothing is half-written, and with space the same command ends as if nothing had been.
    assert [path for path in store_of(plain).rglob("*") if path.is_file() and path.suffix != ".parquet"] == []
    assert not list((store_of(plain) / table).glob("*"))
    assert command(plain).code == 0
    assert {row["key"] for row in rows_of(store_of(plain))} == {row["key"] for row in rows_of(clean)}


def test_disk_full_while_reporting(command: Command, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace_file", write)
        found = command(plain).refused()
    assert "the report cannot be written" in found
    assert "No space left on device" in found
    assert {row["status"] for row in rows_of(store_of(plain), "runs")} == {"failed"}
    assert CliRunner().invoke(app, ["report", str(store_of(plain).parent)]).exit_code == 0
    assert (store_of(plain).parent / "report.html").exists()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_mlflow_server_down(
    command: Command, plain: dict[str, Any], closed_port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"http://127.0.0.1:{closed_port}"
    plain["tracking"] = {"enabled": True, "uri": uri, "timeout_s": 1}
    ended = command(plain)
    assert ended.code == 0
    assert "MLflow" not in ended.out
    warnings = [r.getMessage() for r in caplog.records if "MLflow" in r.getMessage() and r.levelname == "WARNING"]
    assert len(warnings) == 1
    assert uri in warnings[0]
    assert "the job goes on" in warnings[0]
    folder = store_of(plain).parent
    assert f"fairwitness track {folder}" in warnings[0]
    # Later, with a place that works.
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracked = CliRunner().invoke(app, ["track", str(folder), "--uri", database])
    assert tracked.exit_code == 0, tracked.output
    run_id = tracked.output.rpartition("MLflow run: ")[2].strip()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=database)
    parent = client.get_run(run_id)
    assert parent.info.status == "FINISHED"
    (stored,) = rows_of(store_of(plain), "runs")
    assert parent.data.metrics["num_ok"] == stored["num_ok"]
    children = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    assert len(children) == len(RATES)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_ray_that_is_not_there(command: Command, plain: dict[str, Any], closed_port: int) -> None:
    address = f"127.0.0.1:{closed_port}"
    found = command(plain, f"pool.address={address}", pool="ray").refused()
    assert f"no Ray cluster at '{address}'" in found
    assert "ray start --head" in found
    (row,) = rows_of(store_of(plain), "runs")
    assert (row["status"], row["exit_code"]) == ("failed", 2)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_port_of_another_server(command: Command, plain: dict[str, Any]) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"127.0.0.1:{server.server_address[1]}"
        assert f"no Ray cluster at '{address}'" in command(plain, f"pool.address={address}", pool="ray").refused()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_address_of_a_kind_that_ray_does_not_take_here(command: Command, plain: dict[str, Any]) -> None:
    found = command(plain, "pool.address=ray://127.0.0.1:10001", pool="ray").refused()
    assert "Ray address 'ray://127.0.0.1:10001' cannot be used" in found
