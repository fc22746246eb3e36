"""An interrupted measurement of drafts goes on: the union is what one run gives, and no continuation is made twice.

A continuation is known to the engine by the seed of its row, which derives from what it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairwitness.analysis.draft_figures import load_draft_run
from fairwitness.drafts.engine import ContinueItem, DraftItem
from fairwitness.drafts.interventions import INTERVENTIONS
from fairwitness.experiment.job import JobResult
from fairwitness.fleet.pool import Outcome
from fairwitness.records.keys import key_of
from tests.helpers.chat_server import Action, chat_server, completion
from tests.helpers.drafts import DRAFT, draft_settings, run_plain, write_drafts
from tests.helpers.sweeps import (
    Watch,
    assert_same,
    measurements,
    problem,
    rows_of,
    store_of,
    watch_pools,
    write_problems,
)

ROOT = Path(__file__).parents[2]
MODULE = "fairwitness.experiment.measure"
TABLES = ("problems", "drafts", "draft_steps", "continuations")
NUM_PROBLEMS = 5
PER_DRAFT = 12
"""Continuations of one draft within it; the answers after it come later."""

Plain = dict[str, Any]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Callable[..., Plain]:
    """A function that gives settings of the same measurement in a folder of its own."""
    folder = tmp_path_factory.mktemp("data")
    data = write_problems(folder / "animals.jsonl", [problem(number) for number in range(NUM_PROBLEMS)])
    # The last problem has no draft, and the draft before it no conclusion.
    texts = [DRAFT.replace("So the", f"I have seen {n} of them. So the") for n in range(NUM_PROBLEMS - 2)]
    drafts = [{"problem_id": f"p{n}", "draft": text} for n, text in enumerate([*texts, "I do not know."])]
    file = write_drafts(folder / "drafts.jsonl", drafts)

    def settings(**changes: Any) -> Plain:
        usual = {"own_drafts": True, "engine": {"drafts_per_item": 1}}
        output = tmp_path_factory.mktemp("results")
        return draft_settings(output, tiny_folder("llama"), data, file, **{**usual, **changes})

    return settings


@pytest.fixture(scope="module")
def at_once(make: Callable[..., Plain]) -> JobResult:
    found: JobResult = run_plain(make())
    return found


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return watch_pools(monkeypatch, MODULE)


def stop_at(watch: Watch, kind: type, number: int) -> None:
    """Interrupts as soon as this many outcomes of a kind are there, before the last of them is stored."""
    seen: list[int] = []

    def hook(outcome: Outcome) -> None:
        if isinstance(watch.items[-1], kind):
            seen.append(outcome.index)
            if len(seen) == number:
                raise KeyboardInterrupt

    watch.hook = hook


def go_on(watch: Watch) -> None:
    watch.items.clear()
    watch.hook = lambda _outcome: None


def asked(items: Sequence[Any]) -> list[int]:
    """Seeds of all continuations that an engine was asked for."""
    trees = [tree for item in items if isinstance(item, ContinueItem) for tree in item.trees]
    return [branch.seed for tree in trees for branch in tree.branches]


def finished(plain: Plain) -> list[int]:
    """Seeds of the continuations that are stored."""
    rows = [row for row in rows_of(store_of(plain), "continuations") if row["status"] in ("ok", "truncated")]
    names = ("problem_id", "intervention", "insertion_type", "position", "answering")
    return [int(key_of(seed=0, item=[str(row[name]) for name in names]), 16) % 2**63 for row in rows]


def same_as(found: JobResult, expected: JobResult, *, leave_out: Sequence[str] = ()) -> None:
    assert found.counts == expected.counts
    for table in TABLES:
        rows = [measurements(rows_of(r, table), table=table, leave_out=leave_out) for r in (found, expected)]
        assert_same(*rows)


@pytest.mark.parametrize("number", [1, 3, 6])
def test_interrupted_in_the_continuations(
    make: Callable[..., Plain], watch: Watch, at_once: JobResult, number: int
) -> None:
    plain = make()
    stop_at(watch, ContinueItem, number)
    with pytest.raises(KeyboardInterrupt):
        run_plain(plain)
    done = finished(plain)
    assert len(done) == PER_DRAFT * min(number - 1, 3) + max(0, number - 4)
    assert set(done) <= set(asked(watch.items))
    go_on(watch)
    result = run_plain(plain)
    same_as(result, at_once)
    again = asked(watch.items)
    assert set(again).isdisjoint(done)
    assert sorted([*again, *done]) == sorted(finished(plain))
    assert not [item for item in watch.items if isinstance(item, DraftItem)]
    states = sorted(rows_of(result, "runs"), key=lambda row: row["created_at"])
    assert [row["status"] for row in states] == ["interrupted", "done"]


def test_interrupted_in_the_drafts(make: Callable[..., Plain], watch: Watch, at_once: JobResult) -> None:
    plain = make()
    stop_at(watch, DraftItem, 3)
    with pytest.raises(KeyboardInterrupt):
        run_plain(plain)
    kept = [row["key"] for row in rows_of(store_of(plain), "drafts") if row["finish"]]
    assert len(kept) == 2
    all_drafts = NUM_PROBLEMS + NUM_PROBLEMS - 1
    go_on(watch)
    result = run_plain(plain)
    same_as(result, at_once)
    requests = [one for item in watch.items if isinstance(item, DraftItem) for one in item.requests]
    assert len(requests) == all_drafts - len(kept)


def test_a_finished_run_asks_no_engine(make: Callable[..., Plain], watch: Watch, at_once: JobResult) -> None:
    plain = make()
    run_plain(plain)
    go_on(watch)
    again = run_plain(plain)
    assert (watch.items, again.num_models_loaded) == ([], 0)
    same_as(again, at_once)


def test_a_further_intervention_runs_alone(make: Callable[..., Plain], watch: Watch, at_once: JobResult) -> None:
    plain = make()
    run_plain({**plain, "interventions": ["shift_mapping"]})
    done = finished(plain)
    go_on(watch)
    same_as(run_plain(plain), at_once)
    assert len(asked(watch.items)) == PER_DRAFT // 2 * 3
    assert set(asked(watch.items)).isdisjoint(done)


def test_failed_continuations_are_made_again(make: Callable[..., Plain], watch: Watch, at_once: JobResult) -> None:
    plain = make()
    seen: list[int] = []

    def hook(outcome: Outcome) -> Outcome | None:
        if not isinstance(watch.items[-1], ContinueItem):
            return None
        seen.append(outcome.index)
        return replace(outcome, value=None, error="worker died") if len(seen) == 2 else None

    watch.hook = hook
    first = run_plain(plain)
    assert (first.exit_code, first.counts["failed"]) == (1, PER_DRAFT)
    failed = [row for row in rows_of(first, "continuations") if row["status"] == "failed"]
    assert {row["reason"] for row in failed} == {"worker died"}
    go_on(watch)
    second = run_plain(plain)
    assert second.exit_code == 0
    assert len(asked(watch.items)) == PER_DRAFT
    same_as(second, at_once)


GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 0.8, "top_p": 0.9}


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("engine", [{"drafts_per_item": 2, "max_cache_tokens": 1}, {"drafts_per_item": 100}])
def test_batches_change_no_row(make: Callable[..., Plain], engine: dict[str, int], sampling: dict[str, float]) -> None:
    same_as(run_plain(make(engine=engine, sampling=sampling)), run_plain(make(sampling=sampling)))


def test_a_draft_without_its_steps_is_made_again(make: Callable[..., Plain], watch: Watch, at_once: JobResult) -> None:
    plain = make()
    stop_at(watch, ContinueItem, 1)
    with pytest.raises(KeyboardInterrupt):
        run_plain(plain)
    for part in (store_of(plain) / "draft_steps").glob("*.parquet"):
        part.unlink()
    go_on(watch)
    same_as(run_plain(plain), at_once)


def test_a_changed_intervention_is_measured_anew_alone(
    make: Callable[..., Plain], watch: Watch, at_once: JobResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make()
    run_plain(plain)
    before = {row["key"]: row for row in rows_of(store_of(plain), "continuations")}
    shift = INTERVENTIONS["shift_mapping"]
    louder = replace(shift, write=lambda situation, kind: shift.write(situation, kind).upper())
    monkeypatch.setitem(INTERVENTIONS, "shift_mapping", louder)
    go_on(watch)
    result = run_plain(plain)
    assert not [item for item in watch.items if isinstance(item, DraftItem)]
    assert len(asked(watch.items)) == PER_DRAFT // 2 * 3
    assert result.counts == at_once.counts
    # The rows of the earlier text stay stored and count no longer.
    rows = rows_of(result, "continuations")
    new = [row for row in rows if row["key"] not in before]
    assert {row["intervention"] for row in new} == {"shift_mapping"}
    read = load_draft_run(result.run).rows
    assert len(read) == len(before)
    inserted = read.loc[read["intervention"] == "shift_mapping", "inserted_text"]
    assert len(inserted) == PER_DRAFT // 2 * 3
    assert all(text.isupper() for text in inserted)
    monkeypatch.setitem(INTERVENTIONS, "shift_mapping", shift)
    go_on(watch)
    run_plain(plain)
    assert watch.items == []


def test_a_judge_that_reads_behaviours_keeps_the_drafts(make: Callable[..., Plain], watch: Watch) -> None:
    plain = make()
    run_plain(plain)
    go_on(watch)
    with chat_server(lambda _asked, _number: Action(body=completion("verdict: following"))) as server:
        judge = {"kind": "openai", "base_url": server.url, "model": "judge", "api_key_env": None}
        result = run_plain({**plain, "judge": judge})
        dearer = {"price_per_million_prompt_tokens": 1.0, "price_per_million_completion_tokens": 1.0, "max_cost": 9.0}
        assert len(asked(watch.items)) == PER_DRAFT * 3
        assert not [item for item in watch.items if isinstance(item, DraftItem)]
        go_on(watch)
        run_plain({**plain, "judge": {**judge, **dearer}})
    assert watch.items == []
    read = load_draft_run(result.run).rows
    assert set(read.loc[read["dimension"] == "intra", "behaviour_judge"]) == {"following"}


@pytest.mark.slow
def test_two_actors_on_ray_change_no_row(make: Callable[..., Plain]) -> None:
    ray = {"kind": "ray", "address": "local", "max_actors": 2, "min_actors": 2}
    with_ray = run_plain(make(pool=ray, sampling=SAMPLED))
    assert with_ray.num_models_loaded >= 2
    same_as(with_ray, run_plain(make(sampling=SAMPLED)))


DRIVER = """
import json, os, signal, sys, time
import pytest
from fairwitness.drafts.engine import ContinueItem
from tests.helpers.drafts import run_plain
from tests.helpers.sweeps import watch_pools
with pytest.MonkeyPatch.context() as patch:
    watch = watch_pools(patch, "fairwitness.experiment.measure")
    def hook(outcome):
        if sum(isinstance(item, ContinueItem) for item in watch.items) == 3:
            time.sleep(4.0)
            os.kill(os.getpid(), signal.SIGKILL)
    watch.hook = hook
    run_plain(json.loads(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", [{"drafts_per_item": 1}, {"drafts_per_item": 2, "max_cache_tokens": 2000}])
def test_killed_driver_goes_on_where_it_was(
    make: Callable[..., Plain], watch: Watch, at_once: JobResult, engine: dict[str, int]
) -> None:
    plain = make()
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    command = [sys.executable, "-c", DRIVER, json.dumps(plain)]
    driver = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, timeout=200)
    assert driver.returncode == -signal.SIGKILL
    # Two batches were stored a few seconds before the end; the third was not.
    done = finished(plain)
    assert len(done) == 2 * PER_DRAFT
    assert [row["status"] for row in rows_of(store_of(plain), "runs")] == ["running"]
    before = {row["key"]: row for row in rows_of(store_of(plain), "continuations")}
    result = run_plain({**plain, "engine": engine})
    same_as(result, at_once)
    assert set(asked(watch.items)).isdisjoint(done)
    assert sorted([*asked(watch.items), *done]) == sorted(finished(plain))
    # What was finished is as it was, the time that it took included.
    after = {row["key"]: row for row in rows_of(result, "continuations")}
    assert {key: after[key] for key in before} == before
