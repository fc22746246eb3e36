"""Searches on Ray Tune: what they find without Ray, one model load per actor, and a killed driver that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.errors import ModelError
from fairwitness.fleet.cluster import Connection, start_local
from fairwitness.fleet.trials import Reply, Request
from fairwitness.fleet.tune_trials import run_trials_on_tune
from fairwitness.fur.search.bench import Bench
from tests.helpers.searches import SEARCH_RATES, SearchResult, search, search_settings
from tests.helpers.sweeps import assert_same, measurements, rows_of, watch_pools, write_problems
from tests.unit.fleet.planners import FivePlanner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JOB_MODULE = "fairwitness.experiment.measure"
KINDS: dict[str, dict[str, Any]] = {
    "grid": {"kind": "grid", "rates": list(SEARCH_RATES), "max_concurrent": 4},
    "bracket": {"kind": "bracket", "rates": list(SEARCH_RATES), "batch_problems": 2},
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        connection = start_local(num_cpus=2)
        yield connection
        connection.close()


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    data = write_problems(tmp_path / "animals.jsonl")
    return search_settings(tmp_path / "results", tiny_folder("llama"), data, engine={"group_size": 2})


def on_ray(plain: dict[str, Any], **pool: Any) -> dict[str, Any]:
    return {**plain, "pool": {"kind": "ray", "num_cpus_per_actor": 1, **pool}}


def chosen(result: SearchResult) -> float | None:
    (outcome,) = result.outcomes
    return outcome.choice.cell.lr if isinstance(outcome.choice, ChosenRate) else None


@pytest.mark.parametrize("kind", list(KINDS))
def test_ray_finds_what_is_found_without_it_with_one_load_per_actor(
    connection: Connection, plain: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain["search"] = KINDS[kind]
    expected = search({**plain, "name": "local"})
    watch = watch_pools(monkeypatch, JOB_MODULE)
    # Both CPUs belong to the actors: trials must not need one.
    found = search(on_ray(plain, min_actors=2, max_actors=2))
    assert 1 <= found.num_models_loaded <= 2
    assert len({group.lr for group in watch.groups}) == len(found.outcomes[0].tried) >= 2
    assert len(watch.task_keys) == len(set(watch.task_keys)) == found.counts["ok"]
    assert found.counts == expected.counts
    assert chosen(found) == chosen(expected)
    for table, by in (("unlearning", ("key",)), ("trials", ("lr",))):
        leave_out = ("key", "run_key", "trial_index") if table == "trials" else ()
        rows = [measurements(rows_of(r, table), *by, table=table, leave_out=leave_out) for r in (found, expected)]
        assert_same(*rows)
    # Tune's own state is only there to go on with.
    assert not any((found.run.path / "tune").iterdir())
    assert ray.is_initialized()


def test_concurrent_trials_are_measured_together(connection: Connection, plain: dict[str, Any]) -> None:
    asked: list[list[float]] = []
    real = Bench.answer

    def noted(self: Bench, requests: Sequence[Request]) -> list[Reply]:
        asked.append([request.settings["lr"] for request in requests])
        time.sleep(3.0)
        return real(self, requests)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "answer", noted)
        search(on_ray({**plain, "search": KINDS["grid"]}))
    assert max(map(len, asked)) > 1
    assert sorted(lr for rates in asked for lr in rates) == sorted(SEARCH_RATES)


def test_error_while_measuring_ends_the_search(
    connection: Connection, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch, JOB_MODULE)
    watch.stop_after_groups(2, ModelError("the model is gone; bring it back"))
    with pytest.raises(ModelError, match="the model is gone"):
        search(on_ray({**plain, "search": KINDS["grid"]}))
    store = Path(plain["output"]["dir"]) / "small" / "store"
    (row,) = rows_of(store, "runs")
    assert (row["status"], row["exit_code"]) == ("failed", 2)
    done = {one["task_key"] for one in rows_of(store) if one["status"] == "ok"}
    watch.items.clear()
    watch.hook = lambda _outcome: None
    result = search(on_ray({**plain, "search": KINDS["grid"]}))
    assert (result.exit_code, chosen(result)) == (0, 1e-3)
    assert done.isdisjoint(watch.task_keys)


def test_trials_on_tune_do_what_the_planner_says(connection: Connection, tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def answer(requests: Sequence[Request]) -> list[Reply]:
        asked.extend((request.settings["x"], request.turn) for request in requests)
        return [Reply({"x": r.settings["x"], "values": [None, 0.5]}, r.turn == r.settings["x"] % 2) for r in requests]

    shown = run_trials_on_tune(FivePlanner(), answer, folder=tmp_path / "tune" / "five", max_concurrent=2)
    assert sorted(one["x"] for one in shown) == [0, 1, 2, 3, 4]
    assert {tuple(one["values"]) for one in shown} == {(None, 0.5)}
    assert sorted(asked) == [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (4, 0)]
    # The second round waits for all of the first.
    assert {x for x, _ in asked[:4]} <= {0, 1, 2}
    assert not (tmp_path / "tune" / "five").exists()


def test_trial_whose_process_dies_does_not_cut_the_search_short(connection: Connection, tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(requests: Sequence[Request]) -> list[Reply]:
        asked.extend(request.settings["x"] for request in requests)
        if len(asked) == 2:
            children = psutil.Process().children(recursive=True)
            (trial,) = (child for child in children if "ImplicitFunc" in " ".join(child.cmdline()))
            trial.kill()
        return [Reply({"x": request.settings["x"]}, is_over=True) for request in requests]

    shown = run_trials_on_tune(FivePlanner(), answer, folder=tmp_path / "tune" / "five", max_concurrent=1)
    assert sorted(one["x"] for one in shown) == [0, 1, 2, 3, 4]


DRIVER = """
import json, os, signal, sys, time
import pytest
from tests.helpers.searches import search
from tests.helpers.sweeps import watch_pools
with pytest.MonkeyPatch.context() as patch:
    watch = watch_pools(patch)
    def hook(outcome):
        if len({group.lr for group in watch.groups}) == 3:
            time.sleep(6.0)
            os.kill(os.getpid(), signal.SIGKILL)
    watch.hook = hook
    search(json.loads(sys.argv[1]))
"""


def test_killed_driver_goes_on_without_running_anything_again(
    plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch, connection: Connection
) -> None:
    one_by_one = {**KINDS["grid"], "max_concurrent": 1}
    killed = on_ray({**plain, "search": one_by_one}, address="local")
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    command = [sys.executable, "-c", DRIVER, json.dumps(killed)]
    driver = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, timeout=250)
    assert driver.returncode == -signal.SIGKILL
    folder = Path(plain["output"]["dir"]) / "small"
    done = {row["task_key"] for row in rows_of(folder / "store") if row["status"] == "ok"}
    finished = {row["lr"] for row in rows_of(folder / "store") if row["status"] == "ok"}
    assert finished >= set(SEARCH_RATES[:2])
    assert any((folder / "tune").iterdir())

    asked: list[float] = []
    real = Bench.answer

    def noted(self: Bench, requests: Sequence[Request]) -> list[Reply]:
        asked.extend(request.settings["lr"] for request in requests)
        return real(self, requests)

    monkeypatch.setattr(Bench, "answer", noted)
    watch = watch_pools(monkeypatch, JOB_MODULE)
    result = search(killed)
    # Tune remembers the trials that had finished, the store every task.
    assert set(asked) == set(SEARCH_RATES[2:])
    assert done.isdisjoint(watch.task_keys)
    assert len(watch.task_keys) == result.counts["ok"] - len(done)
    expected = search({**plain, "search": one_by_one, "name": "whole"})
    assert chosen(result) == chosen(expected) == 1e-3
    assert_same(measurements(rows_of(result)), measurements(rows_of(expected)))
    assert len(result.outcomes[0].tried) == len(SEARCH_RATES)
