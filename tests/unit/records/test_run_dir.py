from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairwitness.config import Config, load_config, validate
from fairwitness.errors import ConfigError, StoreError
from fairwitness.records.config import OutputConfig
from fairwitness.records.run_dir import RunDirectory, describe_changes, describe_harmless, run_rows
from fairwitness.redact import redact, redact_text
from tests.unit.records.rows import run_row

HOLDER = """
import sys, time
sys.path[:0] = sys.argv[2:]
from fairwitness.records.run_dir import RunDirectory
with RunDirectory(sys.argv[1], "demo").lock():
    print("locked", flush=True)
    time.sleep(60)
"""


class _Tracking(Config):
    uri: str = "https://user:pass@host/mlflow"


class _Job(Config):
    seed: int = 3
    tracking: _Tracking = _Tracking()
    judge: dict[str, str] = {"api_key": "k-123", "model": "x"}  # noqa: RUF012 (pydantic copies it)


def test_paths_are_those_of_the_run_and_nothing_is_made(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "out", "demo")
    names = [run.store_path, run.config_path, run.report_path, run.csv_path, run.lock_path]
    assert [path.relative_to(tmp_path).as_posix() for path in names] == [
        "out/demo/store",
        "out/demo/config.yaml",
        "out/demo/report.html",
        "out/demo/csv",
        "out/demo/lock",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "x" * 101, "é"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="run name"):
        RunDirectory(tmp_path, name)


def test_a_run_is_opened_by_its_path(tmp_path: Path) -> None:
    RunDirectory(tmp_path, "demo").store()
    run = RunDirectory.at(tmp_path / "demo")
    assert (run.name, run.output_dir) == ("demo", tmp_path)
    with pytest.raises(StoreError, match="there is no run here"):
        RunDirectory.at(tmp_path)


def test_a_run_that_was_copied_or_renamed_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "demo (copy) é"
    RunDirectory(tmp_path, "demo").store()
    (tmp_path / "demo").rename(folder)
    run = RunDirectory.at(folder)
    assert (run.name, run.path) == (folder.name, folder)
    for absent in (tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(StoreError, match="there is no run here"):
            RunDirectory.at(absent)


@pytest.mark.parametrize("folder", ["", "a\0b"])
def test_a_folder_that_cannot_be_is_refused(folder: str) -> None:
    with pytest.raises(ConfigError, match="dir"):
        validate(OutputConfig, {"dir": folder}, "job.yaml")


def test_home_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunDirectory("~/results", "demo").path == tmp_path / "results" / "demo"
    assert RunDirectory("~nobody-of-this-name/x", "demo").path == Path("~nobody-of-this-name/x/demo")


def test_a_second_job_on_the_same_run_is_told_who_holds_it(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "demo")
    with run.lock():
        assert run.is_locked()
        with pytest.raises(StoreError, match=rf"another job writes this run \(process {os.getpid()} on .* since 20"):
            RunDirectory(tmp_path, "demo").lock().__enter__()
        with RunDirectory(tmp_path, "other").lock():
            pass
    assert not run.is_locked()
    with run.lock():
        assert json.loads(run.lock_path.read_text())["pid"] == os.getpid()


def test_the_lock_of_a_killed_driver_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), *sys.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            run = RunDirectory(tmp_path, "demo")
            with pytest.raises(StoreError, match=f"process {holder.pid} on "):
                run.lock().__enter__()
        finally:
            holder.send_signal(signal.SIGKILL)
    with run.lock():
        assert json.loads(run.lock_path.read_text())["pid"] == os.getpid()


def test_a_lock_that_cannot_be_made_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/demo/lock: cannot be written"):
        RunDirectory(tmp_path / "file", "demo").lock().__enter__()


def test_the_resolved_configuration_is_written_without_credentials(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "demo")
    run.write_config(_Job(seed=5))
    text = run.config_path.read_text()
    assert "pass" not in text
    assert "k-123" not in text
    assert load_config(_Job, run.config_path) == _Job(
        seed=5, tracking=_Tracking(uri="https://host/mlflow"), judge={"api_key": "***", "model": "x"}
    )
    assert [path.name for path in run.path.iterdir()] == ["config.yaml"]


def test_redaction_hides_a_password_with_an_at_sign() -> None:
    assert redact_text("http://me:p@ss@host:5000/x") == "http://host:5000/x"


def test_redaction_keeps_everything_else() -> None:
    assert redact_text("at http://h/a?x=1&api_token=s3&y=2: no") == "at http://h/a?x=1&api_token=***&y=2: no"
    assert redact_text("see postgresql://me:s3@db:5432/x and a@b.c") == "see postgresql://db:5432/x and a@b.c"
    assert redact({"token": "t", "max_tokens": 3, "pad_token": None, "uris": ["http://u@h/"], "n": 1.5}) == {
        "token": "***",
        "max_tokens": 3,
        "pad_token": None,
        "uris": ["http://h/"],
        "n": 1.5,
    }


def test_changes_are_sentences_with_dotted_keys() -> None:
    before = run_row()
    config = {"seed": 1, "fur": {"lr": [1e-5], "beta": 0.1}}
    after = run_row(config_json=json.dumps(config), models=["m@r2"], data_sets=["d@1", "e@1"], code_revision="code1")
    assert describe_changes(before, after) == [
        "fur.beta: (not set) → 0.1",
        "fur.lr: [1e-05, 0.0001] → [1e-05]",
        "seed: 0 → 1",
        "model no longer used: m@r",
        "model new or changed: m@r2",
        "data set new or changed: e@1",
        "code: code0 → code1",
    ]
    assert describe_changes(before, run_row("run9", status="done")) == []


def test_changes_of_pool_engine_and_tracking_are_one_line() -> None:
    settings = {"pool": {"kind": "ray", "max_actors": 1}, "engine": None, "tracking": {"enabled": True}, "seed": 1}
    before = run_row(config_json=json.dumps(settings))
    settings |= {"pool": {"kind": "local", "max_actors": 2}, "engine": {"max_tokens": 8}, "poolside": 1}
    after = run_row(config_json=json.dumps(settings))
    assert describe_changes(before, after) == ["poolside: (not set) → 1"]
    assert describe_harmless(before, after) == "engine (max_tokens), pool (kind, max_actors)"
    assert describe_harmless(before, before) == ""


def test_a_null_that_appears_is_a_change() -> None:
    changed = describe_changes(run_row(config_json="{}"), run_row(config_json='{"limit": null}'))
    assert changed == ["limit: (not set) → null"]


def test_run_rows_come_oldest_first(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    with RunDirectory(tmp_path, "demo").store() as store:
        store.append("runs", [run_row("b", created_at=datetime(2026, 1, 2, tzinfo=UTC)), run_row("c")])
        store.append("runs", [run_row("a")])
        store.append("runs", [run_row("d", job="fur_baselines", is_followup=True)])
        assert [row["key"] for row in run_rows(store)] == ["a", "c", "b"]
        assert [row["key"] for row in run_rows(store, "fur_baselines")] == ["d"]


def test_a_job_that_follows_keeps_the_settings_of_the_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, "demo")
    first = run.write_config(_Job(seed=5))
    second = run.write_config(_Job(seed=6), "fur_baselines")
    assert (first, second) == (run.config_path, run.path / "config.fur_baselines.yaml")
    assert load_config(_Job, first).seed == 5
