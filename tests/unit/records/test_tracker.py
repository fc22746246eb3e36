from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from fairwitness.config import Config, load_config
from fairwitness.errors import FairwitnessError, StoreError
from fairwitness.records import tracker as mlflow_client
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.tracker import MlflowWriter, Tracker
from tests.helpers.tracking import log_cells, track_run
from tests.unit.records.rows import cot_row, failed_row, run_row, task_rows, unlearning_row

CELL = {"model": "m", "data_set": "d", "method": "ff2", "lr": 1e-4}
METRICS = {1: {"efficacy": 0.25, "loss": 13.0}, 2: {"efficacy": 0.5, "loss": float("nan")}}


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: making them takes seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    MlflowWriter(f"sqlite:///{folder / 'mlflow.db'}", "other", 10)
    return folder / "mlflow.db"


@pytest.fixture
def run(tmp_path: Path, empty_database: Path) -> RunDirectory:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return RunDirectory(tmp_path, "demo")


def client(run: RunDirectory) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{run.output_dir}/mlflow.db")


def all_runs(run: RunDirectory) -> list[Run]:
    mlflow = client(run)
    experiment = mlflow.get_experiment_by_name("fairwitness")
    return list(mlflow.search_runs([experiment.experiment_id])) if experiment else []


def children(run: RunDirectory, parent: str | None) -> list[Run]:
    return [one for one in all_runs(run) if one.data.tags.get("mlflow.parentRunId") == parent]


def history(run: RunDirectory, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client(run).get_metric_history(run_id, name)]


def stored_run(run: RunDirectory, **changes: Any) -> None:
    """A run with one cell of two tasks and a failed one, a report and a table."""
    with run.store() as store:
        store.append("unlearning", task_rows("t0", efficacy=0.25) + task_rows("t1", efficacy=0.75))
        store.append("unlearning", [failed_row("t2")])
        store.append("cots", [cot_row()])
        store.append("runs", [run_row(status="done", num_ok=2, num_failed=1) | changes])
    run.report_path.write_text("<p>report</p>")
    run.csv_path.mkdir()
    (run.csv_path / "cells.csv").write_text("a\n")


def test_a_job_is_a_parent_run_with_a_child_per_cell(run: RunDirectory) -> None:
    tracker = Tracker(TrackingConfig(), run)
    parent = tracker.start(run_row())
    assert parent is not None
    assert client(run).get_run(parent).info.status == "RUNNING"
    tracker.log_cell("c0", CELL, METRICS, {"ff_hard_any": 0.5})
    tracker.finish("done", metrics={"num_ok": 7})
    found = client(run).get_run(parent)
    assert (found.info.status, found.info.run_name, found.data.metrics) == ("FINISHED", "demo", {"num_ok": 7})
    assert found.data.params == {"seed": "0", "fur.lr": "[1e-05, 0.0001]"}
    assert found.data.tags["fairwitness.run_directory"] == str(run.path)
    (child,) = children(run, parent)
    assert (child.info.status, child.info.run_name) == ("FINISHED", "m d ff2 lr=0.0001")
    assert child.data.params == {"model": "m", "data_set": "d", "method": "ff2", "lr": "0.0001"}
    assert history(run, child.info.run_id, "efficacy") == [(1, 0.25), (2, 0.5)]
    assert history(run, child.info.run_id, "loss") == [(1, 13.0)]
    assert history(run, child.info.run_id, "cell/ff_hard_any") == [(0, 0.5)]


def test_logging_a_cell_again_changes_nothing_and_more_results_replace_it(run: RunDirectory) -> None:
    tracker = Tracker(TrackingConfig(), run)
    parent = tracker.start(run_row())
    tracker.log_cell("c0", CELL, METRICS)
    (before,) = children(run, parent)
    tracker.log_cell("c0", CELL, METRICS)
    (same,) = children(run, parent)
    assert same.info.run_id == before.info.run_id
    assert history(run, same.info.run_id, "efficacy") == [(1, 0.25), (2, 0.5)]
    tracker.log_cell("c0", CELL, {1: {"efficacy": 0.75}})
    (after,) = children(run, parent)
    assert history(run, after.info.run_id, "efficacy") == [(1, 0.75)]
    tracker.log_cell("c1", CELL, METRICS)
    assert len(children(run, parent)) == 2


@pytest.mark.parametrize("known_by", ["id", "key"])
def test_a_resumed_job_continues_its_parent_run(run: RunDirectory, known_by: str) -> None:
    first = Tracker(TrackingConfig(), run)
    parent = first.start(run_row("run0"))
    first.finish("interrupted")
    assert client(run).get_run(str(parent)).info.status == "KILLED"
    earlier = run_row("run0", mlflow_run_id=parent if known_by == "id" else None)
    second = Tracker(TrackingConfig(), run)
    changed = json.dumps({"seed": 9, "extra": True})
    assert second.start(run_row("run1", config_json=changed), [earlier]) == parent
    assert client(run).get_run(str(parent)).info.status == "RUNNING"
    assert client(run).get_run(str(parent)).data.params == {"seed": "0", "fur.lr": "[1e-05, 0.0001]", "extra": "true"}


def test_a_parent_that_is_gone_or_elsewhere_is_not_continued(run: RunDirectory) -> None:
    tracker = Tracker(TrackingConfig(), run)
    parent = tracker.start(run_row())
    client(run).delete_run(str(parent))
    again = Tracker(TrackingConfig(), run).start(run_row(mlflow_run_id="0" * 32), [run_row(mlflow_run_id=parent)])
    assert again not in (None, parent)
    elsewhere = Tracker(TrackingConfig(experiment="second"), run).start(run_row(mlflow_run_id=again))
    assert elsewhere not in (None, parent, again)


def test_artifacts_keep_their_place_and_missing_ones_are_left_out(run: RunDirectory, tmp_path: Path) -> None:
    stored_run(run)
    (tmp_path / "elsewhere.txt").write_text("x")
    tracker = Tracker(TrackingConfig(), run)
    parent = tracker.start(run_row())
    files = [run.report_path, run.csv_path / "cells.csv", tmp_path / "elsewhere.txt", run.path / "none.txt"]
    tracker.finish("done", files)
    mlflow = client(run)
    assert sorted(file.path for file in mlflow.list_artifacts(str(parent))) == ["csv", "elsewhere.txt", "report.html"]
    assert [file.path for file in mlflow.list_artifacts(str(parent), "csv")] == ["csv/cells.csv"]
    assert (tmp_path / "mlartifacts").is_dir()


def test_track_run_logs_from_the_store_what_a_live_job_logs_and_twice_is_once(run: RunDirectory) -> None:
    stored_run(run)
    live = Tracker(TrackingConfig(experiment="live"), run)
    live.start(run_row())
    log_cells(live, run)
    live.finish("done")
    parent = track_run(run.path, TrackingConfig())
    assert track_run(run.path, TrackingConfig()) == parent
    found = client(run).get_run(str(parent))
    assert found.info.status == "FINISHED"
    assert history(run, str(parent), "num_ok") == [(0, 2.0)]
    assert sorted(file.path for file in client(run).list_artifacts(str(parent))) == ["csv", "report.html"]
    assert [file.path for file in client(run).list_artifacts(str(parent), "csv")] == ["csv/cells.csv"]
    (child,) = children(run, parent)
    assert len(all_runs(run)) == 2
    assert history(run, child.info.run_id, "efficacy") == [(1, 0.5), (2, 0.5)]
    assert child.data.metrics["cell/num_tasks_failed"] == 1
    (experiment,) = [e for e in client(run).search_experiments() if e.name == "live"]
    (same,) = [one for one in client(run).search_runs([experiment.experiment_id]) if "efficacy" in one.data.metrics]
    assert same.data.metrics == child.data.metrics
    assert same.data.params == child.data.params


def test_a_job_whose_server_is_down_goes_on_and_is_logged_later(
    run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    down = TrackingConfig(uri="http://me:s3cret@127.0.0.1:9/x", timeout_s=1)
    began_s = time.monotonic()
    with caplog.at_level(logging.WARNING, "fairwitness"):
        tracker = Tracker(down, run)
        assert tracker.start(run_row()) is None
        assert not tracker.is_active
        tracker.log_cell("c0", CELL, METRICS)
        tracker.finish("done", [run.report_path])
    assert time.monotonic() - began_s < 20
    (record,) = [record for record in caplog.records if record.name.startswith("fairwitness")]
    assert f"the job goes on, and its results are in the store. Log them later with: fairwitness track {run.path}" in (
        record.getMessage()
    )
    assert "s3cret" not in caplog.text
    stored_run(run)
    with pytest.raises(FairwitnessError, match=r"MLflow at http://127\.0\.0\.1:9/x cannot be used .*start the server"):
        track_run(run.path, down)
    assert len(children(run, track_run(run.path, TrackingConfig()))) == 1


class _NotMlflow(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def test_a_port_that_another_program_uses_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HTTPServer(("127.0.0.1", 0), _NotMlflow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        tracker = Tracker(TrackingConfig(uri=f"http://127.0.0.1:{server.server_port}"), RunDirectory(tmp_path, "demo"))
        assert tracker.start(run_row()) is None
        server.shutdown()
        thread.join()
    assert "cannot be used (API request" in caplog.text


def test_a_server_that_never_answers_costs_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "")  # so that what the tracker sets is undone after the test
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        tracker = Tracker(TrackingConfig(uri=uri, timeout_s=1), RunDirectory(tmp_path, "demo"))
        began_s = time.monotonic()
        assert tracker.start(run_row()) is None
        assert 1 <= time.monotonic() - began_s < 15


def test_a_database_that_cannot_be_used_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    uris = (f"sqlite:///{tmp_path}/file/mlflow.db", f"sqlite:///{tmp_path}/file", "nonsense://x", "http://[")
    # The driver is not installed, or nobody listens.
    for uri in (*uris, "postgresql://me@127.0.0.1:9/db?password=hunter2"):
        tracker = Tracker(TrackingConfig(uri=uri), RunDirectory(tmp_path, "demo"))
        assert tracker.start(run_row()) is None
        assert not tracker.is_active
    assert caplog.text.count("the job goes on") == 5
    assert "hunter2" not in caplog.text


def test_nothing_is_logged_when_tracking_is_off(tmp_path: Path) -> None:
    tracker = Tracker(TrackingConfig(enabled=False), RunDirectory(tmp_path, "demo"))
    assert tracker.start(run_row()) is None
    tracker.log_cell("c0", CELL, METRICS)
    tracker.finish("done")
    assert list(tmp_path.iterdir()) == []


def test_credentials_are_not_logged(run: RunDirectory) -> None:
    config = json.dumps({"tracking": {"uri": "https://me:s3cret@host/x"}, "judge": {"api_key": "s3cret"}})
    tracker = Tracker(TrackingConfig(), run)
    parent = tracker.start(run_row(config_json=config))
    tracker.log_cell("c0", CELL | {"model": "https://me:s3cret@host/m"}, METRICS)
    assert len(children(run, parent)) == 1
    assert "s3cret" not in str([one.to_dictionary() for one in all_runs(run)])


def test_limits_of_mlflow_are_kept(run: RunDirectory) -> None:
    """More than 100 parameters, more than 1000 metrics, long values and odd names."""
    tracker = Tracker(TrackingConfig(), run, strict=True)
    params = {f"p{number}": "x" * 7000 for number in range(101)}
    parent = tracker.start(run_row())
    tracker.log_cell("c0", params, {step: {"a(b)=c": 1.0, "m": step} for step in range(1, 602)})
    (child,) = children(run, parent)
    assert len(child.data.params) == 101
    assert history(run, child.info.run_id, "m")[-1] == (601, 601.0)
    assert child.data.metrics["a_b__c"] == 1.0


def test_track_run_says_what_is_missing(run: RunDirectory) -> None:
    with pytest.raises(StoreError, match="there is no run here"):
        track_run(run.path, TrackingConfig())
    run.store()
    with pytest.raises(StoreError, match="no run is recorded here"):
        track_run(run.path, TrackingConfig())
    with run.lock(), pytest.raises(StoreError, match="a job is writing this run and tracks it itself"):
        track_run(run.path, TrackingConfig())


def test_a_killed_job_is_shown_as_killed(run: RunDirectory) -> None:
    stored_run(run, status="running")
    assert client(run).get_run(str(track_run(run.path, TrackingConfig()))).info.status == "KILLED"


def test_cells_of_other_configurations_in_the_same_store_are_not_of_this_job(run: RunDirectory) -> None:
    stored_run(run)
    with run.store() as store:
        store.append("unlearning", [unlearning_row("t9", cell_key="old")])
    (child,) = children(run, track_run(run.path, TrackingConfig()))
    assert child.data.tags["fairwitness.cell_key"] == "c0"


def test_the_environment_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    mlflow_client._prepare(3)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "1"


def test_the_configuration_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    class Job(Config):
        tracking: TrackingConfig = TrackingConfig()

    path = tmp_path / "job.yaml"
    path.write_text("tracking: {url: http://host}")
    with pytest.raises(FairwitnessError, match=r"unknown key 'tracking.url'; did you mean 'uri'\?"):
        load_config(Job, path)
