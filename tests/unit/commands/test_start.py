"""What entry points share: exit codes, signals, settings of shipped jobs; and the command in a process of its own."""

from __future__ import annotations

import io
import logging
import os
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairwitness.commands import common
from fairwitness.commands.runs import _tracking_of
from fairwitness.commands.start import closing_lines, read_config
from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.errors import (
    ConfigError,
    DataError,
    FairwitnessError,
    InfeasibleError,
    ItemError,
    ModelError,
    ResourceError,
    StoreError,
)
from fairwitness.experiment.job import JobResult, Report
from fairwitness.jobs import JOBS
from fairwitness.organisms.shipped import organism_path
from fairwitness.organisms.supplies import with_shipped
from fairwitness.records.run_dir import RunDirectory
from tests.helpers.commands import Command, process_settings_restored
from tests.helpers.job_configs import SWEEPS
from tests.helpers.sweeps import RATES, rows_of, settings, write_problems

ROOT = Path(__file__).parents[3]
SWEEP = JOBS["fur_sweep"]
JOB = ROOT / "jobs" / "fur_sweep.py"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    with process_settings_restored():
        yield Command(tmp_path, capsys)


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    return settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ConfigError, 2),
        (DataError, 2),
        (ModelError, 2),
        (ResourceError, 2),
        (StoreError, 2),
        (InfeasibleError, 3),
        (ItemError, 1),
        (FairwitnessError, 1),
    ],
)
def test_expected_errors_end_with_a_code_and_a_message(
    kind: type[FairwitnessError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise kind("x.yaml: broken; mend it")

    assert common.ended(fail) == code
    assert capsys.readouterr() == ("", "error: x.yaml: broken; mend it\n")


def test_other_errors_are_not_hidden() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        common.ended(fail)
    assert common.ended(lambda: 7) == 7


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////data/mlflow.db", " ui --backend-store-uri sqlite:////data/mlflow.db"),
        ("sqlite:////my data/mlflow.db", " ui --backend-store-uri 'sqlite:////my data/mlflow.db'"),
        ("http://me:s3cret@host:5000", "MLflow: http://host:5000"),
    ],
)
def test_closing_line_shows_where_mlflow_has_the_run(uri: str, shown: str, tmp_path: Path) -> None:
    reported = Report((tmp_path / "report.html",), ())
    result = JobResult(RunDirectory(tmp_path, "demo"), 0, Counter(ok=1), reported, uri, 1)
    line = next(line for line in closing_lines(SWEEP, result) if line.startswith("MLflow"))
    assert line.endswith(shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_says_how_to_go_on(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        os.kill(os.getpid(), number)
        signal.pause()
        return 0

    with process_settings_restored():
        # A test run started in the background by a script is born with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        common.set_up()
        assert common.ended(interrupted) == 130
    assert "run the same command again" in capsys.readouterr().err


def test_set_up_is_quiet() -> None:
    with process_settings_restored():
        common.set_up()
        assert logging.getLogger("fairwitness").isEnabledFor(logging.INFO)
        assert not logging.getLogger("transformers").isEnabledFor(logging.INFO)
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_end_of_a_process_does_not_search_for_garbage() -> None:
    # Handlers run last to first: this one after all that `set_up` and the libraries leave for the end.
    code = """if True:
        import atexit, gc
        atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))
        from fairwitness.commands.common import set_up
        set_up()
        import torch
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left, frozen = map(int, ended.stdout.split())
    assert frozen > 100_000
    assert left < 10_000


def test_lines_reach_a_pipe_at_once() -> None:
    with io.TextIOWrapper(io.BufferedWriter(raw := io.BytesIO())) as pipe:
        common.say("first line", stream=pipe)
        assert raw.getvalue() == b"first line\n"


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid(path: Path) -> None:
    config = read_config(SWEEP, path, ["seed=3"], "local")
    assert config.name == path.stem
    assert (config.seed, config.pool.kind) == (3, "local")


def test_there_are_four_shipped_sweeps() -> None:
    assert [path.stem for path in SWEEPS] == ["demo", "methods", "paper", "smollm2"]


def test_organism_is_an_alias_of_the_shipped_model() -> None:
    config = read_config(SWEEP, ROOT / "jobs" / "configs" / "demo.yaml", [])
    assert config.models[0].model == str(organism_path())
    assert config.models[0].shown_name == "organism"
    named = read_config(SWEEP, ROOT / "jobs" / "configs" / "demo.yaml", ["models.0.name=ours"])
    assert named.models[0].shown_name == "ours"


def test_organism_may_judge_and_write() -> None:
    local = {"kind": "local", "model": {"model": "organism"}}
    plain = {"name": "x", "models": [{"model": "organism"}], "data_sets": [{"data_set": "organism"}], "writer": local}
    config = with_shipped(validate(DraftFaithfulnessConfig, plain, "x.yaml"))
    assert config.models[0].model == config.writer.model.model == str(organism_path())
    assert config.writer.model.shown_name == "organism"
    assert with_shipped(config) == config


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def run(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with process_settings_restored(), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "jobs" / f"{name}.py"), run_name="__main__")
        return int(ended.value.code or 0)

    return run


@pytest.mark.parametrize("name", JOBS)
def test_options_of_every_script(name: str, script: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert script(name, "--help") == 0
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert shown == {"--config", "--set", "--pool", "--help", "--dry-run"}


@pytest.mark.parametrize("arguments", [["--config", "none.yaml"], ["--config", "x.yaml", "--pool", "cluster"], []])
def test_a_script_ends_with_the_jobs_exit_code(arguments: list[str], script: Callable[..., int]) -> None:
    assert script("fur_sweep", *arguments) == 2


def test_whole_command(command: Command, plain: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    ended = command(plain, f"rates=[{RATES[0]}]")
    assert ended.code == 0
    folder = Path(plain["output"]["dir"]) / "small"
    lines = ended.out.splitlines()
    counts = next(line for line in lines if line.startswith("tasks: "))
    (row,) = rows_of(folder / "store", "runs")
    assert counts == f"tasks: {row['num_ok']} ok, {row['num_skipped']} skipped, 0 failed; refused records: 0"
    assert f"report: {(folder / 'report.html').resolve()}" in lines
    assert (folder / "report.html").stat().st_size > 1000
    assert {path.stem for path in (folder / "csv").glob("*.csv")} >= {"summary", "rates", "steps", "problems"}
    assert yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["rates"] == [RATES[0]]
    assert not RunDirectory(plain["output"]["dir"], "small").is_locked()
    assert f"run small: results go to {folder}" in [record.getMessage() for record in caplog.records]
    # A handful of problems is too few, and the job says so.
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any(line.startswith("tiny on animals: Caution: ff-hard counts only ") for line in warned)


def test_dry_run(command: Command, plain: dict[str, Any]) -> None:
    ended = command(plain, dry=True)
    assert ended.code == 0
    assert ended.out.startswith("dry run: reading models' settings and data sets; nothing is stored\n1 study for ")
    assert "GiB per actor" in ended.out
    assert not Path(plain["output"]["dir"]).exists()


def test_tracking_settings_come_from_the_run(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "results" / "small"
    (folder / "store").mkdir(parents=True)
    assert _tracking_of(folder, uri=None, experiment=None).experiment == "fairwitness"
    (folder / "config.yaml").write_text("tracking: {enabled: false, experiment: own, uri: 'sqlite:///x.db'}")
    own = _tracking_of(folder, uri=None, experiment=None)
    assert (own.enabled, own.experiment, own.uri) == (True, "own", "sqlite:///x.db")
    given = _tracking_of(folder, uri="http://host:1", experiment="other")
    assert (given.enabled, given.experiment, given.uri) == (True, "other", "http://host:1")
    for text, message in (
        (b"\xff", "cannot be read"),
        (b"- a", "not a list"),
        (b"tracking: 7", "config.yaml: tracking: "),
    ):
        (folder / "config.yaml").write_bytes(text)
        with pytest.raises(ConfigError, match=message):
            _tracking_of(folder, uri=None, experiment=None)
    with pytest.raises(StoreError, match="there is no run here"):
        _tracking_of(tmp_path, uri=None, experiment=None)


def job(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, str(JOB), *arguments], capture_output=True, text=True, env=environment, timeout=250
    )


@pytest.mark.slow
def test_job_in_a_process_of_its_own_refuses_bad_settings(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("nmae: x", encoding="utf-8")
    ended = job("--config", str(tmp_path / "job.yaml"))
    assert ended.returncode == 2
    assert "unknown key 'nmae'; did you mean 'name'?" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.slow
def test_job_in_a_process_of_its_own_runs_to_the_end(plain: dict[str, Any], tmp_path: Path) -> None:
    plain["pool"] = {"kind": "ray"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
    ended = job("--config", str(tmp_path / "job.yaml"), "--pool", "local", "--set", "rates=[2e-5]")
    assert ended.returncode == 0, ended.stderr
    assert "report: " in ended.stdout
    assert "Traceback" not in ended.stderr
    assert {row["lr"] for row in rows_of(tmp_path / "results" / "small" / "store")} == {2e-5}
