"""A sweep gives the same rows however it is run: group size, padding, order of the data, local or Ray, any actors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from fairwitness.experiment.job import JobResult
from fairwitness.fleet.cluster import Connection, start_local
from fairwitness.fleet.pool import Outcome
from tests.helpers.sweeps import (
    NUM_HELD_OUT,
    NUM_PROBLEMS,
    assert_same,
    measurements,
    problem,
    rows_of,
    run,
    settings,
    watch_pools,
    write_problems,
)

PLACE = ("problem_id", "cot_step_index", "lr", "iteration")

Sweep = Callable[..., JobResult]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Sweep:
    """Runs the same small sweep in a folder of its own with other settings."""
    data = write_problems(tmp_path_factory.mktemp("data") / "animals.jsonl")

    def one(**changes: Any) -> JobResult:
        path = changes.pop("path", data)
        return run(settings(tmp_path_factory.mktemp("runs"), tiny_folder("llama"), path, **changes))

    return one


@pytest.fixture(scope="module")
def usual(sweep: Sweep) -> JobResult:
    return sweep()


def same_tables(found: JobResult, expected: JobResult) -> None:
    assert found.counts == expected.counts
    for table in ("problems", "cots", "cot_steps", "unlearning"):
        assert_same(
            measurements(rows_of(found, table), table=table), measurements(rows_of(expected, table), table=table)
        )


@pytest.mark.parametrize("size", [1, 3])
def test_group_size_changes_no_row(sweep: Sweep, usual: JobResult, size: int) -> None:
    grouped = sweep(engine={"group_size": size})
    measured = [row for row in rows_of(grouped) if row["status"] == "ok"]
    assert max(row["group_size"] for row in measured) == size
    same_tables(grouped, usual)


@pytest.mark.parametrize("max_tokens", [1, 300])
def test_padding_changes_no_row(sweep: Sweep, usual: JobResult, max_tokens: int) -> None:
    same_tables(sweep(engine={"max_tokens": max_tokens}), usual)


def test_order_of_the_data_changes_no_measurement(sweep: Sweep, usual: JobResult, tmp_path: Path) -> None:
    backwards = [problem(number) for number in reversed(range(NUM_PROBLEMS + NUM_HELD_OUT))]
    turned = sweep(path=write_problems(tmp_path / "animals.jsonl", backwards))
    # Keys hold problems, not the file that they are from.
    keys = [name for name in rows_of(usual)[0] if name == "key" or name.endswith("_key")]
    assert {row["key"] for row in rows_of(turned)} == {row["key"] for row in rows_of(usual)}
    assert_same(*(measurements(rows_of(result), *PLACE, leave_out=keys) for result in (turned, usual)))


def test_seed_changes_measurements(sweep: Sweep, usual: JobResult) -> None:
    # Shows that the comparison of these tests can fail.
    drawn = [[row["problem_id"] for row in rows_of(result, "cots")] for result in (sweep(seed=1), usual)]
    assert set(drawn[0]) != set(drawn[1])


@pytest.fixture(scope="module")
def ray_on_this_machine() -> Iterator[Connection]:
    """A Ray of our own, on a machine where the ports that Ray usually takes are in use by others."""
    with ExitStack() as stack:
        for port in (6379, 8265, 10001, 52365):
            other = stack.enter_context(socket.socket())
            with suppress(OSError):  # then somebody else has it already
                other.bind(("127.0.0.1", port))
                other.listen()
        connection = start_local(num_cpus=2)
        yield connection
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("num_actors", [1, 2])
def test_ray_gives_the_rows_of_the_local_pool(
    ray_on_this_machine: Connection, sweep: Sweep, usual: JobResult, num_actors: int
) -> None:
    on_ray = sweep(
        pool={"kind": "ray", "min_actors": num_actors, "max_actors": num_actors, "num_cpus_per_actor": 0.5},
        engine={"group_size": 2},
    )
    assert 1 <= on_ray.num_models_loaded <= num_actors
    same_tables(on_ray, usual)


@pytest.mark.slow
def test_killed_actor_changes_no_row(
    ray_on_this_machine: Connection, sweep: Sweep, usual: JobResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    killed: list[int] = []

    def kill_the_actor_once(_outcome: Outcome) -> None:
        if watch.groups and not killed:
            (actor,) = (p for p in psutil.Process().children(recursive=True) if "Worker" in "".join(p.cmdline()[:1]))
            actor.kill()
            killed.append(actor.pid)

    watch.hook = kill_the_actor_once
    on_ray = sweep(pool={"kind": "ray", "num_cpus_per_actor": 0.5}, engine={"group_size": 2})
    assert len(killed) == 1
    assert on_ray.num_models_loaded == 2
    same_tables(on_ray, usual)
