"""What becomes of CoTs and losses that are bad: a row with its reason, while the rest goes on.

- CoT with no sentence, of only ineligible steps, too long: test_bad_cots_are_rows_and_the_rest_measured
- non-finite loss: test_non_finite_loss_fails_its_task_only
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fairwitness.experiment.job import JobResult
from fairwitness.fur import unlearn
from fairwitness.lm.tokens import PromptEncoder
from fairwitness.problems.load import load_problems, select
from fairwitness.problems.problem import Problem
from tests.helpers.commands import Command
from tests.helpers.sweeps import config_of, problem, rows_of, script_cots, store_of, write_problems
from tests.helpers.tiny_tokenizers import byte_level_tokenizer


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
    command: Command, plain: dict[str, Any], clean: JobResult, monkeypatch: pytest.MonkeyPatch
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


def test_refused_records_are_named_in_the_terminal_before_and_during_the_run(
    command: Command, plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "animals.jsonl"
    good = [problem(number) for number in range(9)]
    write_problems(path, [*good, *(problem(number, answer="Z") for number in range(9, 16))])
    plain |= {"rates": [1e-3]}
    command(plain, dry=True)
    in_dry_run = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    lines = [line.partition(f"{path}:")[2].partition(" ")[0] for line in in_dry_run[:5]]
    assert lines == [str(number) for number in range(10, 15)]
    assert "field 'answer':" in in_dry_run[0]
    assert in_dry_run[5].endswith("and 2 more refused; the report names all")
    caplog.clear()
    ended = command(plain)
    named = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert named[:6] == in_dry_run
    assert named[5].endswith("and 2 more refused; the report names all")
    assert "refused records: 7" in ended.out
