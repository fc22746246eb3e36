"""What a user gets for everything that can be wrong: one clear message, or a row while the rest goes on.

- unknown configuration key, rate as text, rate ≤ 0: test_settings_that_are_refused, test_rate_in_quotes_is_that_rate
- missing model path: test_missing_model
- pickled weights: test_pickled_weights
- tokenizer without pad token: test_tokenizer_without_pad_token
- tokenizer that merges "(" with a letter: test_tokenizer_that_merges_the_letter
- more than 26 choices, empty question, gold outside the choices: test_bad_records_are_counted_and_the_rest_measured
- no usable record, missing data file: test_data_without_a_problem, test_missing_data_file
- CoT with no sentence, of only ineligible steps, too long: test_bad_cots_are_rows_and_the_rest_measured
- fewer than 20 held-out problems: test_too_few_problems_to_hold_out
- non-finite loss: test_non_finite_loss_fails_its_task_only
- unwritable output: test_output_that_cannot_be_written
- second job on the same run: test_second_job_on_the_same_run
- disk full: test_disk_full_while_measuring, test_disk_full_while_reporting
- MLflow server down: test_mlflow_server_down; a server that answers: tests/integration/test_mlflow_server.py
- Ray away, port of another server: test_ray_that_is_not_there, test_port_of_another_server
- Ray's usual ports in use, actor killed: tests/invariant/test_ways_of_running.py, tests/integration/test_ray_pool.py
- driver killed and restarted, interrupted: tests/integration/test_resume.py
- the command itself, in a process of its own: tests/unit/test_launch.py
"""

from __future__ import annotations

import errno
import http.server
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.fur import unlearn
from fairwitness.fur.sweep import SweepResult
from fairwitness.lm.tokens import PromptEncoder
from fairwitness.problems.load import load_problems
from fairwitness.problems.problem import Problem
from fairwitness.problems.selection import select
from fairwitness.records import parts
from fairwitness.records.run_dir import RunDirectory
from fairwitness.report import build
from tests.helpers.commands import Command, process_settings_restored
from tests.helpers.sweeps import RATES, config_of, problem, rows_of, run, script_cots, settings, write_problems
from tests.helpers.tiny_models import save_tiny
from tests.helpers.tiny_tokenizers import byte_level_tokenizer, merging_tokenizer


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    with process_settings_restored():
        yield Command(tmp_path, capsys)


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    return settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> SweepResult:
    """The same sweep where nothing goes wrong."""
    folder = tmp_path_factory.mktemp("clean")
    return run(settings(folder, tiny_folder("llama"), write_problems(folder / "animals.jsonl")))


def store_of(plain: dict[str, Any]) -> Path:
    return Path(plain["output"]["dir"]) / "small" / "store"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rtaes=[1e-3]", "unknown key 'rtaes'; did you mean 'rates'?"),
        ("recipe.betta=0.2", "unknown key 'recipe.betta'; did you mean 'beta'?"),
        ("data_sets.0.num_problem=3", "unknown key 'data_sets.0.num_problem'; did you mean 'num_problems'?"),
        ("rates=[fast]", "rates.0: "),
        ("rates=['2e-5 per step']", "rates.0: "),
        ("rates=[0]", "rates.0: "),
        ("rates=[1e-3, -1e-3]", "rates.1: "),
        ("rates=[.nan]", "rates.0: "),
        ("rates", "write it as key=value"),
    ],
)
def test_settings_that_are_refused(command: Command, plain: dict[str, Any], override: str, message: str) -> None:
    found = command(plain, override).refused()
    assert message in found
    assert "job.yaml: " in found or f"--set {override}: " in found
    assert not store_of(plain).exists()


def test_file_that_is_no_configuration(command: Command) -> None:
    assert "job.yaml: must hold `key: value` lines" in command("just words").refused()
    assert "job.yaml: not valid YAML" in command("rates: [1").refused()
    assert "job.yaml: key 'name' is given twice (line 2)" in command("name: a\nname: b").refused()


def test_rate_in_quotes_is_that_rate(command: Command, plain: dict[str, Any]) -> None:
    assert command(plain, "rates=['2e-5']").code == 0
    assert {row["lr"] for row in rows_of(store_of(plain))} == {2e-5}


def test_missing_model(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    plain["models"][0]["model"] = str(tmp_path / "absent")
    assert str(tmp_path / "absent") in command(plain).refused()


def test_pickled_weights(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    plain["models"][0]["model"] = str(folder)
    found = command(plain).refused()
    assert str(folder) in found
    assert "safetensors" in found


def test_tokenizer_without_pad_token(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    plain["models"][0]["model"] = str(save_tiny(tmp_path / "model", tokenizer=byte_level_tokenizer(pad=False)))
    assert command(plain).code == 0
    (row,) = rows_of(store_of(plain), "runs")
    assert "tokenizer without pad token" in json.loads(row["environment_json"])["model_notes"]["tiny"][0]
    assert row["num_ok"] > 0


def test_tokenizer_that_merges_the_letter(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", tokenizer=merging_tokenizer())
    plain["models"][0]["model"] = str(folder)
    found = command(plain).refused()
    assert str(folder) in found
    assert "merges the answer cue with letter A" in found


def test_bad_records_are_counted_and_the_rest_measured(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    bad = [
        problem(20, choices=[f"animal {n}" for n in range(27)], answer="A"),
        problem(21, question="  "),
        problem(22, answer="F"),
    ]
    records = [problem(n) for n in range(9)]
    write_problems(tmp_path / "animals.jsonl", [*bad, *records])
    ended = command(plain)
    assert ended.code == 0
    assert "refused records: 3" in ended.out
    rows = rows_of(store_of(plain), "problems")
    assert Counter(row["status"] for row in rows) == {"ok": 5, "refused": 3}
    reasons = {row["source"].rpartition(":")[2]: row["reason"] for row in rows if row["status"] == "refused"}
    assert reasons.keys() == {"1", "2", "3"}
    assert "field 'choices'" in reasons["1"]
    assert "27" in reasons["1"]
    assert "field 'question'" in reasons["2"]
    assert "field 'answer'" in reasons["3"]
    assert all("animals.jsonl" in reason for reason in reasons.values())
    (run_row,) = rows_of(store_of(plain), "runs")
    assert run_row["num_refused"] == 3


def test_data_without_a_problem(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    write_problems(tmp_path / "animals.jsonl", [problem(1, question="")])
    found = command(plain).refused()
    assert "animals.jsonl:1 (record 1): field 'question'" in found
    write_problems(tmp_path / "animals.jsonl", [])
    assert "animals.jsonl" in command(plain).refused()


def test_missing_data_file(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "animals.jsonl").unlink()
    assert "animals.jsonl" in command(plain).refused()


def test_too_few_problems_to_hold_out(command: Command, plain: dict[str, Any]) -> None:
    del plain["data_sets"][0]["num_held_out"]
    found = command(plain).refused()
    assert "animals: 9 problems are too few for 20 held-out problems and 5 to measure" in found
    assert "set num_held_out to at most 4" in found


def test_bad_cots_are_rows_and_the_rest_measured(
    command: Command, plain: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("empty", "vague", "long", "usual", "other")
    questions = {name: f"Which of the {name} ones is it?" for name in names}
    questions["long"] = longest_question("Which of the long ones is it?")
    records = [problem(n, id=name, question=questions[name]) for n, name in enumerate(names)]
    write_problems(tmp_path / "animals.jsonl", [*records, problem(7)])
    plain["data_sets"][0] |= {"num_held_out": 1, "num_problems": 5}
    plain |= {"seed": seed_that_measures(plain, names)}
    script_cots(monkeypatch, {"the empty ones": "", "the vague ones": "So it is. It is so.", "the long ones": None})
    ended = command(plain)
    assert ended.code == 1
    assert "some tasks failed" in ended.out
    found = {
        (row["problem_id"], row["cot_step_index"], row["status"], row["reason"]) for row in rows_of(store_of(plain))
    }
    by_problem = {name: {place[1:] for place in found if place[0] == name} for name in names}
    assert by_problem["empty"] == {(None, "skipped", "the CoT is empty: the model ended it at once")}
    assert by_problem["vague"] == {(n, "skipped", "fewer than 2 content words") for n in (0, 1)}
    ((index, status, reason),) = by_problem["long"]
    assert (index, status) == (None, "failed")
    assert "the model's context holds 512" in reason
    assert by_problem["usual"] == by_problem["other"] == {(0, "ok", None), (1, "ok", None)}
    report = (store_of(plain).parent / "report.html").read_text(encoding="utf-8")
    assert "the model&#39;s context holds 512" in report or "the model's context holds 512" in report


def longest_question(start: str) -> str:
    """A question that just fits into the tiny model's context of 512 tokens, so that it does not with a CoT."""
    encoder = PromptEncoder(byte_level_tokenizer(), "plain")
    choices = tuple(problem(0)["choices"])
    texts = (f"{start}{' fox' * number}" for number in range(400, 0, -1))
    return next(text for text in texts if len(encoder.direct(Problem("", text, choices, None, ""))) < 505)


def seed_that_measures(plain: dict[str, Any], names: tuple[str, ...]) -> int:
    """A seed for which the one held-out problem is none of the names."""
    data = config_of(plain).data_sets[0]
    for seed in range(100):
        drawn = select(load_problems(data, seed=seed), num_problems=5, num_held_out=1, seed=seed)
        if {one.problem_id for one in drawn.measured} == set(names):
            return seed
    raise AssertionError("no such seed")


def test_non_finite_loss_fails_its_task_only(
    command: Command, plain: dict[str, Any], clean: SweepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain["engine"] = {"group_size": 3}
    real = unlearn._gradients

    def poisoned(objective: Any, variants: Any, *args: Any) -> Any:
        losses = real(objective, variants, *args)
        for parameter in variants.parameters():
            parameter.grad[0] = torch.nan
        return losses

    monkeypatch.setattr(unlearn, "_gradients", poisoned)
    ended = command(plain)
    assert ended.code == 1
    rows = rows_of(store_of(plain))
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(failed) == len([row for row in rows if row["status"] == "ok"]) / 2 / 2
    assert {row["reason"] for row in failed} == {
        "non-finite loss or measurement at iteration 1; lower the learning rate"
    }
    expected = {row["key"]: row["probs"] for row in rows_of(clean)}
    assert all(row["probs"] == pytest.approx(expected[row["key"]], rel=1e-5) for row in rows if row["status"] == "ok")
    (run_row,) = rows_of(store_of(plain), "runs")
    assert (run_row["num_failed"], run_row["exit_code"]) == (len(failed), 1)


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
    command: Command, plain: dict[str, Any], clean: SweepResult, monkeypatch: pytest.MonkeyPatch, table: str
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
        patch.setattr(build, "_replace", write)
        found = command(plain).refused()
    assert "the report cannot be written" in found
    assert "No space left on device" in found
    assert {row["status"] for row in rows_of(store_of(plain), "runs")} == {"done"}
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
