"""An interrupted sweep goes on: the union is what one run gives, nothing finished runs again, changes are announced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairwitness.chains.items import CotItem, CotOutcome, StepScoreItem
from fairwitness.errors import StoreError
from fairwitness.experiment.job import JobResult
from fairwitness.fleet.pool import Outcome
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.records.run_dir import RunDirectory
from tests.helpers.sweeps import (
    RATES,
    Watch,
    assert_same,
    measurements,
    problem,
    rows_of,
    run,
    settings,
    store_of,
    watch_pools,
    write_problems,
)
from tests.helpers.tiny_models import save_tiny

ROOT = Path(__file__).parents[2]
TABLES = ("problems", "cots", "cot_steps", "unlearning")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_problems(tmp_path_factory.mktemp("data") / "animals.jsonl")


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path], data: Path) -> dict[str, Any]:
    return settings(tmp_path / "results", tiny_folder("llama"), data, engine={"group_size": 2})


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], data: Path) -> JobResult:
    return run(settings(tmp_path_factory.mktemp("once"), tiny_folder("llama"), data, engine={"group_size": 2}))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return watch_pools(monkeypatch)


def stored_tasks(plain: dict[str, Any]) -> set[str]:
    return {row["task_key"] for row in rows_of(store_of(plain)) if row["status"] == "ok"}


def same_as(found: JobResult, expected: JobResult) -> None:
    assert found.counts == expected.counts
    for table in TABLES:
        rows = [measurements(rows_of(result, table), table=table) for result in (found, expected)]
        assert_same(*rows)


@pytest.mark.parametrize("number", [1, 4])
def test_interrupted_while_unlearning(plain: dict[str, Any], watch: Watch, at_once: JobResult, number: int) -> None:
    watch.stop_after_groups(number, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(plain)
    (row,) = rows_of(store_of(plain), "runs")
    assert (row["status"], row["exit_code"]) == ("interrupted", 130)
    done = stored_tasks(plain)
    assert len(done) == 2 * (number - 1)
    watch.items.clear()
    watch.hook = lambda _outcome: None
    result = run(plain)
    same_as(result, at_once)
    # What was stored is not sent to an engine again, and no CoT is written twice.
    assert len(watch.task_keys) == result.counts["ok"] - len(done)
    assert done.isdisjoint(watch.task_keys)
    assert not [item for item in watch.items if isinstance(item, CotItem | StepScoreItem)]
    assert [row["status"] for row in sorted(rows_of(result, "runs"), key=lambda r: r["created_at"])] == [
        "interrupted",
        "done",
    ]


@pytest.mark.parametrize("kind", [CotItem, StepScoreItem])
def test_interrupted_in_the_base_measurements(
    plain: dict[str, Any], watch: Watch, at_once: JobResult, kind: type
) -> None:
    def hook(_outcome: Outcome) -> None:
        if isinstance(watch.items[-1], kind):
            raise KeyboardInterrupt

    watch.hook = hook
    with pytest.raises(KeyboardInterrupt):
        run(plain)
    assert stored_tasks(plain) == set()
    watch.hook = lambda _outcome: None
    same_as(run(plain), at_once)


def test_cots_are_kept_as_they_come(
    plain: dict[str, Any], watch: Watch, at_once: JobResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairwitness.chains.cots.COTS_PER_ITEM", 2)

    def hook(_outcome: Outcome) -> None:
        if sum(isinstance(item, CotItem) for item in watch.items) == 2:
            raise KeyboardInterrupt

    watch.hook = hook
    with pytest.raises(KeyboardInterrupt):
        run(plain)
    kept = rows_of(store_of(plain), "cots")
    assert [row["status"] for row in kept] == ["ok", "ok"]
    assert rows_of(store_of(plain), "cot_steps") == []
    watch.items.clear()
    watch.hook = lambda _outcome: None
    result = run(plain)
    asked = [request.prompt for item in watch.items if isinstance(item, CotItem) for request in item.requests]
    assert len(asked) == 3
    assert {tuple(row["prompt_ids"]) for row in kept}.isdisjoint(asked)
    same_as(result, at_once)


def test_finished_run_asks_no_engine(plain: dict[str, Any], watch: Watch, at_once: JobResult) -> None:
    run(plain)
    watch.items.clear()
    again = run(plain)
    assert watch.items == []
    assert again.num_models_loaded == 0
    same_as(again, at_once)


def test_further_rate_runs_alone(
    plain: dict[str, Any], watch: Watch, at_once: JobResult, caplog: pytest.LogCaptureFixture
) -> None:
    run({**plain, "rates": [RATES[0]]})
    watch.items.clear()
    result = run(plain)
    assert {group.lr for group in watch.groups} == {RATES[1]}
    assert not [item for item in watch.items if isinstance(item, CotItem)]
    assert "changed since the last time: rates: [0.001] → [0.001, 0.01]" in caplog.text
    same_as(result, at_once)


def test_changed_recipe_is_announced_and_measured_anew(
    plain: dict[str, Any], watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(plain)
    before = rows_of(first)
    watch.items.clear()
    second = run({**plain, "recipe": {"num_iterations": 2, "beta": 0.2}})
    assert "changed since the last time: recipe.beta: 0.1 → 0.2" in caplog.text
    # The base measurements stay, every task is another one, and the old rows are still there.
    assert not [item for item in watch.items if isinstance(item, CotItem)]
    assert len(watch.task_keys) == first.counts["ok"]
    assert second.counts == first.counts
    cells = {row["cell_key"] for row in before}
    assert measurements(row for row in rows_of(second) if row["cell_key"] in cells) == measurements(before)
    assert len(rows_of(second)) == 2 * len(before)


def test_disagreeing_can_be_asked_for_later(plain: dict[str, Any], at_once: JobResult) -> None:
    first = run({**plain, "measure": {"disagreeing": False}})
    assert first.counts["ok"] < at_once.counts["ok"]
    assert run(plain).counts == at_once.counts


def test_changed_data_is_announced(plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_problems(tmp_path / "animals.jsonl")
    plain["data_sets"][0] |= {"path": str(path)}
    first = run(plain)
    write_problems(path, [problem(n, choices=["cat", "dog", "cow", "ant"]) for n in range(9)])
    second = run(plain)
    assert "changed since the last time: data set new or changed: animals@" in caplog.text
    assert "changed since the last time: data set no longer used: animals@" in caplog.text
    scopes = {row["scope_key"] for row in rows_of(second, "cots")}
    assert len(scopes) == 1
    assert len(rows_of(second, "cots")) == 10
    assert sum(second.counts.values()) < len({row["task_key"] for row in rows_of(second)})
    assert first.exit_code == second.exit_code == 0


def test_changed_model_is_announced(plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_tiny(tmp_path / "model", seed=1)
    plain["models"][0] |= {"model": str(folder)}
    run(plain)
    save_tiny(folder, seed=2)
    second = run(plain)
    assert "changed since the last time: model new or changed: tiny@sha256-" in caplog.text
    assert len({row["model_revision"] for row in rows_of(second)}) == 2


def test_failed_tasks_are_tried_again(plain: dict[str, Any], watch: Watch, at_once: JobResult) -> None:
    seen: list[int] = []

    def hook(outcome: Outcome) -> Outcome | None:
        if isinstance(watch.items[-1], UnlearnGroup):
            seen.append(outcome.index)
            return replace(outcome, value=None, error="worker died") if len(seen) == 2 else None
        return None

    watch.hook = hook
    first = run(plain)
    assert (first.exit_code, first.counts["failed"]) == (1, 2)
    failed = [row for row in rows_of(first) if row["status"] == "failed"]
    assert {(row["reason"], row["attempt"], row["iteration"]) for row in failed} == {("worker died", 1, 0)}
    watch.items.clear()
    watch.hook = lambda _outcome: None
    second = run(plain)
    assert sorted(watch.task_keys) == sorted(row["task_key"] for row in failed)
    assert second.exit_code == 0
    attempts = {row["task_key"]: row["attempt"] for row in rows_of(second)}
    assert {key for key, attempt in attempts.items() if attempt == 2} == set(watch.task_keys)
    same_as(second, at_once)


def test_failed_cots_are_tried_again(plain: dict[str, Any], watch: Watch, at_once: JobResult) -> None:
    def hook(outcome: Outcome) -> Outcome | None:
        failing = isinstance(watch.items[-1], CotItem)
        return replace(outcome, value=None, error="worker died") if failing else None

    watch.hook = hook
    first = run(plain)
    assert (first.exit_code, first.counts["failed"], first.counts["ok"]) == (1, 5 * len(RATES), 0)
    assert {row["status"] for row in rows_of(first, "cots")} == {"failed"}
    watch.hook = lambda _outcome: None
    second = run(plain)
    assert second.exit_code == 0
    assert second.counts["failed"] == 0
    assert second.counts["ok"] == at_once.counts["ok"]
    measured = [
        {key: row for key, row in measurements(rows_of(result)).items() if row["status"] == "ok"}
        for result in (second, at_once)
    ]
    assert_same(*measured)


def test_cot_that_succeeds_later_gives_what_one_run_gives(plain: dict[str, Any], watch: Watch, tmp_path: Path) -> None:
    plain["recipe"] |= {"num_retain": 1}
    at_once = run({**plain, "output": {"dir": str(tmp_path / "once")}})
    (written,) = (item for item in watch.items if isinstance(item, CotItem))
    watch.items.clear()

    def hook(outcome: Outcome) -> Outcome | None:
        if not isinstance(watch.items[-1], CotItem):
            return None
        lost = CotOutcome((), None, None, "worker died")
        return replace(outcome, value=[lost, *outcome.value[1:]])

    watch.hook = hook
    first = run(plain)
    assert first.counts["failed"] == len(RATES)
    before = set(watch.task_keys)
    watch.hook = lambda _outcome: None
    watch.items.clear()
    second = run(plain)
    (again,) = (item for item in watch.items if isinstance(item, CotItem))
    assert again.requests == written.requests[:1]
    # Its own steps are measured, and the tasks that retain one of them once more; the others stay as they are.
    prompt = again.requests[0].prompt
    tasks = [task for group in watch.groups for task in group.tasks]
    own = [task for task in tasks if task.forget.ids[: len(prompt)] == prompt]
    drawn = [task for task in tasks if any(kept.ids[: len(prompt)] == prompt for kept in task.retain)]
    assert own
    assert drawn
    assert len(own) + len(drawn) == len(tasks)
    assert before.isdisjoint(task.task_key for task in tasks)
    assert len(drawn) < len(before)
    assert second.exit_code == 0
    taken_back = [row for row in rows_of(second) if row["cot_step_index"] is None]
    assert {row["status"] for row in taken_back} == {"skipped"}
    found = measurements(row for row in rows_of(second) if row not in taken_back)
    assert_same(found, measurements(rows_of(at_once)))


def test_second_job_on_the_run_is_refused(plain: dict[str, Any]) -> None:
    directory = RunDirectory(plain["output"]["dir"], "small")
    with directory.lock(), pytest.raises(StoreError, match=rf"another job writes this run \(process {os.getpid()} on "):
        run(plain)
    assert run(plain).exit_code == 0


DRIVER = """
import json, os, signal, sys, time
import pytest
from tests.helpers.sweeps import run, watch_pools
with pytest.MonkeyPatch.context() as patch:
    watch = watch_pools(patch)
    def hook(outcome):
        if len(watch.groups) == 3:
            time.sleep(4.0)
            os.kill(os.getpid(), signal.SIGKILL)
    watch.hook = hook
    run(json.loads(sys.argv[1]))
"""


@pytest.mark.slow
def test_killed_driver_goes_on_where_it_was(plain: dict[str, Any], watch: Watch, at_once: JobResult) -> None:
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    command = [sys.executable, "-c", DRIVER, json.dumps(plain)]
    driver = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, timeout=200)
    assert driver.returncode == -signal.SIGKILL
    # The first two groups were stored a few seconds before the end; the third was not.
    done = stored_tasks(plain)
    assert len(done) == 4
    assert [row["status"] for row in rows_of(store_of(plain), "runs")] == ["running"]
    result = run(plain)
    same_as(result, at_once)
    assert done.isdisjoint(watch.task_keys)
    assert len(watch.task_keys) == result.counts["ok"] - 4
