"""Whole sweeps without Ray: every item ends as a row, counts add up, options work, a dry run stores nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import fingerprint
from fairwitness.experiment.job import JobResult
from fairwitness.experiment.measure import Supplies
from fairwitness.fur.sweep import FurSweep
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_reference import unlearn_plainly
from tests.helpers.sweeps import (
    NUM_HELD_OUT,
    NUM_PROBLEMS,
    RATES,
    Watch,
    config_of,
    problem,
    rows_of,
    run,
    script_cots,
    settings,
    watch_pools,
    write_problems,
)

Make = Callable[..., dict[str, Any]]

CHECKS = {"npo_at_start", "kl_at_start", "policy_minus_reference", "left_padding", "restored"}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Make:
    data = write_problems(tmp_path_factory.mktemp("data") / "animals.jsonl")
    return lambda **changes: settings(tmp_path_factory.mktemp("runs"), tiny_folder("llama"), data, **changes)


@pytest.fixture(scope="module")
def usual(make: Make) -> Iterator[tuple[JobResult, Watch]]:
    with pytest.MonkeyPatch.context() as patch:
        watch = watch_pools(patch)
        yield run(make()), watch


def test_every_step_of_every_problem_at_every_rate_ends_as_a_row(usual: tuple[JobResult, Watch]) -> None:
    result, _ = usual
    cots = {row["problem_id"]: row for row in rows_of(result, "cots")}
    assert len(cots) == NUM_PROBLEMS
    assert Counter(row["status"] for row in rows_of(result, "problems")) == {"ok": NUM_PROBLEMS}
    steps = Counter(row["problem_id"] for row in rows_of(result, "cot_steps"))
    assert steps == {name: row["num_cot_steps"] for name, row in cots.items()}
    eligible = {(row["problem_id"], row["cot_step_index"]): row["eligible"] for row in rows_of(result, "cot_steps")}
    found = {(row["lr"], row["problem_id"], row["cot_step_index"], row["iteration"]) for row in rows_of(result)}
    expected = {
        (lr, *place, iteration)
        for lr in RATES
        for place, ok in eligible.items()
        for iteration in ([1, 2] if ok else [0])
    }
    assert found == expected
    assert len(rows_of(result)) == len(expected)


def test_counts_add_up(usual: tuple[JobResult, Watch]) -> None:
    result, watch = usual
    tasks = Counter({row["task_key"]: row["status"] for row in rows_of(result)}.values())
    assert tasks["ok"] > 0
    assert tasks["skipped"] > 0
    assert result.counts == {"failed": 0, **tasks, "refused": 0}
    assert len(watch.task_keys) == len(set(watch.task_keys)) == tasks["ok"]
    assert result.exit_code == 0


def test_one_model_serves_all_rates(usual: tuple[JobResult, Watch]) -> None:
    result, watch = usual
    assert {group.lr for group in watch.groups} == set(RATES)
    assert result.num_models_loaded == 1


def test_run_is_recorded(usual: tuple[JobResult, Watch]) -> None:
    result, _ = usual
    (row,) = rows_of(result, "runs")
    assert (row["status"], row["exit_code"], row["name"], row["job"]) == ("done", 0, "small", "fur_sweep")
    assert (row["num_ok"], row["num_skipped"]) == (result.counts["ok"], result.counts["skipped"])
    assert (row["num_failed"], row["num_refused"]) == (0, 0)
    assert set(row["cell_keys"]) == {one["cell_key"] for one in rows_of(result)}
    assert set(row["scope_keys"]) == {one["scope_key"] for one in rows_of(result)}
    assert row["config_fingerprint"] == fingerprint(json.loads(row["config_json"]))
    assert row["finished_at"] >= row["created_at"]
    health = json.loads(row["health_json"])
    assert {name.rpartition(": ")[2] for name in health} == CHECKS
    assert all(check["ok"] for check in health.values())


def test_rows_are_those_of_the_straightforward_way(usual: tuple[JobResult, Watch], tiny_llama: LanguageModel) -> None:
    result, watch = usual
    by_iteration = {(row["task_key"], row["iteration"]): row for row in rows_of(result)}
    group = watch.groups[0]
    for task in group.tasks[:2]:
        for expected in unlearn_plainly(tiny_llama, task, group):
            row = by_iteration[task.task_key, expected.iteration]
            assert row["probs"] == pytest.approx(expected.probs, rel=1e-4)
            assert row["cot_step_logprob"] == pytest.approx(expected.cot_step_logprob, rel=1e-4)
            assert row["losses"][0] == pytest.approx(expected.losses["npo"], rel=1e-4)
            assert row["losses"][1] == pytest.approx(expected.losses["kl"], rel=1e-3, abs=1e-6)
            assert row["held_out_letters"] == ["ABCD"[index] for index in expected.held_out]
            assert row["predicted_letter"] == "ABCD"[expected.index]


def test_a_model_is_loaded_once_for_all_its_data_sets(
    make: Make, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    plain = make(rates=[1e-3])
    other = write_problems(tmp_path / "other.jsonl", [problem(n) for n in range(20, 28)])
    plain["data_sets"] += [{**plain["data_sets"][0], "path": str(other), "num_problems": 3}]
    plain["models"] += [{"model": str(tiny_folder("gpt2")), "name": "second"}]
    result = run(plain)
    assert result.num_models_loaded == 2
    assert {(row["model"], row["data_set"]) for row in rows_of(result)} == {
        (model, data) for model in ("tiny", "second") for data in ("animals", "other")
    }
    (row,) = rows_of(result, "runs")
    assert (len(row["scope_keys"]), len(row["cell_keys"])) == (4, 4)


def test_cot_after_fills_the_last_iteration_only(make: Make, usual: tuple[JobResult, Watch]) -> None:
    result = run(make(measure={"cot_after": True}))
    columns = ("cot_after_ids", "cot_after_text", "cot_after_letter")
    for row in rows_of(result):
        filled = [row[name] is not None for name in columns]
        assert filled == [row["status"] == "ok" and row["iteration"] == 2] * 3
    changed = {row["cot_after_text"] for row in rows_of(result)} - {None}
    assert changed - {row["cot_text"] for row in rows_of(result, "cots")}
    # Asking for it changes nothing else.
    place = ("problem_id", "cot_step_index", "lr", "iteration")
    usual_rows = {tuple(row[n] for n in place): row["loss"] for row in rows_of(usual[0])}
    assert {tuple(row[n] for n in place): row["loss"] for row in rows_of(result)} == pytest.approx(usual_rows)


def test_lora(make: Make) -> None:
    result = run(make(recipe={"method": {"kind": "lora", "rank": 2}}, rates=[1e-2]))
    measured = [row for row in rows_of(result) if row["status"] == "ok"]
    assert result.counts["ok"] > 0
    assert result.counts["failed"] == 0
    assert {row["method"] for row in measured} == {"lora"}
    assert any(abs(row["efficacy"]) > 1e-4 for row in measured)


def test_disagreeing_problems_are_skipped_unless_asked_for(make: Make, usual: tuple[JobResult, Watch]) -> None:
    result = run(make(measure={"disagreeing": False}, rates=[1e-3]))
    agree = {row["problem_id"]: row["agree"] for row in rows_of(result, "cots")}
    # Of a random model's answers some differ; else this test would show nothing.
    assert set(agree.values()) == {True, False}
    statuses: dict[str, set[str]] = {name: set() for name in agree}
    for row in rows_of(result):
        statuses[row["problem_id"]].add(row["status"])
        if not agree[row["problem_id"]]:
            assert row["reason"] in ("direct and CoT answers differ", "fewer than 2 content words")
    assert all((("ok" in found) == agree[name]) for name, found in statuses.items())
    asked = {row["problem_id"] for row in rows_of(usual[0]) if row["status"] == "ok"}
    assert asked == set(agree)


def lines_of_dry_run(plain: dict[str, Any]) -> list[str]:
    return list(FurSweep(config_of(plain), Supplies()).dry_run())


def test_dry_run_says_what_would_be_done_and_stores_nothing(
    make: Make, usual: tuple[JobResult, Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch, "fairwitness.fur.dry_run")
    plain = make(engine={"group_size": 3})
    lines = FurSweep(config_of(plain), Supplies()).dry_run()
    announced = [next(lines) for _ in range(2)]
    assert announced[0] == f"1 study for 1 actor; the run would write to {Path(plain['output']['dir']) / 'small'}"
    assert announced[1] == (
        f"tiny on animals: {NUM_PROBLEMS} problems, {NUM_HELD_OUT} held out, 2 rates; "
        f"measuring {NUM_PROBLEMS} problems and one group of tasks now"
    )
    # What is announced comes before the work.
    assert watch.items == []
    (estimate,) = lines
    assert list(Path(plain["output"]["dir"]).iterdir()) == []
    # All five problems are in the sample, so the number of tasks is the true one.
    num_tasks = usual[0].counts["ok"]
    assert re.fullmatch(
        rf"tiny on animals: about {num_tasks} tasks in {-(-num_tasks // 3)} groups of up to 3; [\d.]+ GiB per actor "
        r"\([\d.]+ GiB free here\); \d+ s on machines like this one",
        estimate,
    )
    assert len(watch.groups) == 1


def test_dry_run_counts_one_as_one_and_adds_up_several(make: Make, tmp_path: Path) -> None:
    plain = make(rates=[1e-3], engine={"group_size": 100})
    plain["data_sets"][0]["num_problems"] = 1
    plain["data_sets"] += [{**plain["data_sets"][0], "num_problems": 2, "name": "second"}]
    first, _, one, what, estimate, total = lines_of_dry_run(plain)
    assert first.startswith("2 studies for 1 actor; ")
    assert one.startswith("tiny on animals: no task among the first 1 problem, mostly because: ")
    assert "2 problems, 4 held out, 1 rate; measuring 2 problems and" in what
    assert re.match(r"tiny on second: about \d+ tasks? in 1 group of up to 100; ", estimate)
    assert re.fullmatch(r"all studies: about \d+ s", total)


def test_dry_run_of_what_has_no_task(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    script_cots(monkeypatch, {}, default="So it is.")
    study = lines_of_dry_run(make())[-1]
    assert "no task among the first 5 problems" in study
    assert "fewer than 2 content words" in study
