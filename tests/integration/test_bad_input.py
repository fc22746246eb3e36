"""What a user gets for settings, models and data that are wrong: one clear message, or rows while the rest goes on.

- unknown configuration key, rate as text, rate ≤ 0: test_settings_that_are_refused, test_rate_in_quotes_is_that_rate
- missing model path: test_missing_model
- pickled weights: test_pickled_weights
- tokenizer without pad token: test_tokenizer_without_pad_token
- tokenizer that merges "(" with a letter: test_tokenizer_that_merges_the_letter
- more than 26 choices, empty question, gold outside the choices: test_bad_records_are_counted_and_the_rest_measured
- no usable record, missing data file: test_data_without_a_problem, test_missing_data_file
- fewer than 20 held-out problems: test_too_few_problems_to_hold_out
- CoTs and losses: test_bad_items.py; disks, servers, other jobs: test_bad_surroundings.py
- the command itself, in a process of its own: tests/unit/test_launch.py
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.commands import Command
from tests.helpers.sweeps import problem, rows_of, store_of, write_problems
from tests.helpers.tiny_models import save_tiny
from tests.helpers.tiny_tokenizers import byte_level_tokenizer, merging_tokenizer


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
