"""The tracker against a running `mlflow server`, looked at over REST."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.tracker import Tracker
from tests.helpers.tracking import log_cells, track_run
from tests.unit.records.rows import cot_row, run_row, task_rows

pytestmark = pytest.mark.slow
START_S = 120


class Server:
    """An `mlflow server` child process on a free port."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        deadline_s = time.monotonic() + START_S
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline_s, (self.folder / "server.log").read_text()
            time.sleep(0.3)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(20)

    def ask(self, path: str, question: dict[str, Any] | None = None) -> Any:
        data = None if question is None else json.dumps(question).encode()
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path, "demo")
    with run.store() as store:
        store.append("unlearning", task_rows("t0", efficacy=0.25) + task_rows("t1", efficacy=0.75))
        store.append("unlearning", task_rows("t2", cell_key="c1", lr=1e-3))
        store.append("cots", [cot_row()])
        store.append("runs", [run_row(cell_keys=["c0", "c1"], status="done", num_ok=3)])
    run.report_path.write_text("<p>report</p>")
    return run


def shown(server: Server, experiment: str) -> list[Any]:
    found = server.ask(f"experiments/get-by-name?experiment_name={experiment}")["experiment"]["experiment_id"]
    return list(server.ask("runs/search", {"experiment_ids": [found]}).get("runs", []))


def test_runs_metrics_and_artifacts_are_there_over_rest(server: Server, run: RunDirectory) -> None:
    tracker = Tracker(TrackingConfig(uri=server.uri, experiment="live"), run, strict=True)
    parent = tracker.start(run_row())
    log_cells(tracker, run)
    tracker.finish("done", [run.report_path], {"num_ok": 3})
    runs = {one["info"]["run_id"]: one for one in shown(server, "live")}
    assert len(runs) == 3
    assert runs[parent]["info"]["status"] == "FINISHED"
    assert {"key": "seed", "value": "0"} in runs[parent]["data"]["params"]
    tags = [{tag["key"]: tag["value"] for tag in one["data"]["tags"]} for one in runs.values()]
    assert sum(one.get("mlflow.parentRunId") == parent for one in tags) == 2
    (cell,) = [key for key, one in runs.items() if {"key": "lr", "value": "0.0001"} in one["data"].get("params", [])]
    points = server.ask(f"metrics/get-history?run_id={cell}&metric_key=efficacy")["metrics"]
    assert [(int(point["step"]), point["value"]) for point in points] == [(1, 0.5), (2, 0.5)]
    files = server.ask(f"artifacts/list?run_id={parent}")["files"]
    assert [file["path"] for file in files] == ["report.html"]
    assert (run.output_dir / "mlflow.db").exists() is False


def test_a_server_that_goes_away_and_comes_back(
    server: Server, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    config = TrackingConfig(uri=server.uri, experiment="later", timeout_s=2)
    tracker = Tracker(config, run)
    parent = tracker.start(run_row())
    tracker.log_cell("c0", {"lr": 1e-4}, {1: {"efficacy": 0.1}})
    server.stop()
    try:
        tracker.log_cell("c1", {"lr": 1e-3}, {1: {"efficacy": 0.2}})
        tracker.finish("done", [run.report_path])
        assert not tracker.is_active
        assert tracker.run_id == parent
        assert caplog.text.count("the job goes on") == 1
    finally:
        server.start()
    assert [one["info"]["status"] for one in shown(server, "later") if one["info"]["run_id"] == parent] == ["RUNNING"]
    for _ in range(2):
        assert track_run(run.path, config) == parent
    runs = shown(server, "later")
    assert [one["info"]["status"] for one in runs] == ["FINISHED"] * 3
    efficacy = [m["value"] for one in runs for m in one["data"].get("metrics", []) if m["key"] == "cell/efficacy"]
    assert sorted(efficacy) == [0.5, 0.5]
