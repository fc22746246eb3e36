"""`RayPool` on a Ray with two CPUs and two made-up GPUs: the contract of pools, pinning, death, refusal, interrupts."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import ray

from fairwitness.errors import ModelError, ResourceError
from fairwitness.fleet.cluster import Connection, start_local
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.fleet.ray_pool import RayPool
from tests.unit.fleet.fleet_engines import AdderSpec, DoerSpec, FailingSpec
from tests.unit.fleet.pool_contract import PoolContract

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        connection = start_local(num_cpus=2, num_gpus=2)
        yield connection
        connection.close()


@pytest.fixture
def open_pool(connection: Connection) -> Iterator[Callable[..., RayPool]]:
    pools: list[RayPool] = []

    def open_one(**settings: object) -> RayPool:
        pools.append(RayPool(PoolConfig.model_validate(settings), connection))
        return pools[-1]

    yield open_one
    for pool in pools:
        pool.close()


@pytest.fixture(scope="module")
def shared_pool(connection: Connection) -> Iterator[RayPool]:
    pool = RayPool(PoolConfig(num_cpus_per_actor=0.25, max_attempts=2), connection)
    yield pool
    pool.close()


def num_living_actors() -> int:
    actors = ray._private.state.actors().values()
    return sum(actor["State"] != "DEAD" for actor in actors)


def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    until_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def by_index(outcomes: Iterator[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda outcome: outcome.index)


class TestRayPool(PoolContract):
    """The contract, on one pool that all tests share."""

    max_actors = 1
    in_flight_per_actor = 2

    @pytest.fixture
    def pool(self, shared_pool: RayPool) -> Pool:
        return shared_pool


@pytest.mark.parametrize(("share", "devices"), [(1.0, ["0", "1"]), (0.5, ["0", "0", "1", "1"])])
def test_actors_are_pinned_and_pack(
    open_pool: Callable[..., RayPool], tmp_path: Path, share: float, devices: list[str]
) -> None:
    number = len(devices)
    pool = open_pool(num_gpus_per_actor=share, num_cpus_per_actor=0.25, max_actors=number, in_flight_per_actor=1)
    outcomes = list(pool.map(DoerSpec(), [("meet", str(tmp_path), number)] * number))
    assert sorted(outcome.value["CUDA_VISIBLE_DEVICES"] for outcome in outcomes) == devices
    assert pool.num_builds == number


def test_actor_without_gpu_sees_none(shared_pool: RayPool) -> None:
    (outcome,) = shared_pool.map(DoerSpec(), [("see",)])
    assert outcome.value["CUDA_VISIBLE_DEVICES"] == ""


def test_actors_come_and_go_with_demand(open_pool: Callable[..., RayPool], tmp_path: Path) -> None:
    living_before = num_living_actors()
    pool = open_pool(num_gpus_per_actor=1, num_cpus_per_actor=0.25, max_actors=9, idle_timeout_s=0.2)
    list(pool.map(DoerSpec(), [("echo", 1)]))
    assert pool.num_builds == 1
    # Two GPUs hold two actors: the other seven are asked for, and taken back when no item waits.
    list(pool.map(DoerSpec(), [("meet", str(tmp_path), 2)] * 2 + [("echo", 1)] * 30))
    assert pool.num_builds == 2
    assert eventually(lambda: num_living_actors() - living_before == 2)
    # A long item: the idle actor is ended, the minimum stays.
    list(pool.map(DoerSpec(), [("sleep", 2.5, None)]))
    assert eventually(lambda: num_living_actors() - living_before == 1)


def test_dead_actor_is_replaced_and_its_items_retried(shared_pool: RayPool, tmp_path: Path) -> None:
    list(shared_pool.map(DoerSpec(), [("echo", 0)]))
    builds_before = shared_pool.num_builds
    items = [("echo", 0), ("die_once", str(tmp_path / "died")), ("echo", 2), ("echo", 3)]
    outcomes = by_index(shared_pool.map(DoerSpec(), items))
    assert [outcome.value for outcome in outcomes] == [0, "alive", 2, 3]
    assert [outcome.error for outcome in outcomes] == [None] * 4
    assert outcomes[1].num_attempts == 2
    assert shared_pool.num_builds == builds_before + 1


def test_actor_killed_from_outside_is_replaced(shared_pool: RayPool) -> None:
    iterator = shared_pool.map(DoerSpec(), [("see",), ("sleep", 1.0, "woken"), ("echo", 2)])
    os.kill(next(iterator).value["pid"], signal.SIGKILL)
    rest = by_index(iterator)
    assert [(outcome.index, outcome.value) for outcome in rest] == [(1, "woken"), (2, 2)]
    assert rest[0].num_attempts == 2


def test_item_that_always_kills_fails_alone(shared_pool: RayPool) -> None:
    items = [("echo", 0), ("die",), ("echo", 2), ("echo", 3), ("echo", 4)]
    outcomes = by_index(shared_pool.map(DoerSpec(), items))
    assert [outcome.index for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert [outcome.value for outcome in outcomes] == [0, None, 2, 3, 4]
    assert outcomes[1].num_attempts == 2
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith("2 worker(s) died under this item")
    assert "\n" not in outcomes[1].error
    assert [outcome.error for outcome in outcomes if outcome.index != 1] == [None] * 4


def test_death_while_building_is_a_model_error(shared_pool: RayPool) -> None:
    with pytest.raises(ModelError, match="2 workers in a row died while building FailingSpec"):
        list(shared_pool.map(FailingSpec("death"), [1]))


def test_result_that_cannot_be_sent_fails_its_item_only(shared_pool: RayPool) -> None:
    outcomes = by_index(shared_pool.map(DoerSpec(), [("unpicklable",), ("echo", 1)]))
    assert outcomes[0].value is None
    assert outcomes[0].error is not None
    assert "\n" not in outcomes[0].error
    assert outcomes[1].value == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_gpus_per_actor": 3}, r"no node can hold a worker of 1 CPU, 3 GPU; there is 1 node with 2 CPU, 2 GPU"),
        ({"num_cpus_per_actor": 64}, r"no node can hold a worker of 64 CPU, 0 GPU"),
        ({"min_actors": 3, "max_actors": 3}, r"3 workers of 1 CPU, 0 GPU each were asked for, the cluster holds 2"),
    ],
)
def test_what_can_never_be_given_is_refused_at_once(
    connection: Connection, settings: dict[str, float], message: str
) -> None:
    start_s = time.monotonic()
    with pytest.raises(ResourceError, match=message):
        RayPool(PoolConfig.model_validate(settings), connection)
    assert time.monotonic() - start_s < 2.0


def test_no_actor_in_time_is_an_error(open_pool: Callable[..., RayPool]) -> None:
    holder = open_pool(num_gpus_per_actor=2, num_cpus_per_actor=0.25)
    list(holder.map(DoerSpec(), [("echo", 1)]))
    waiting = open_pool(num_gpus_per_actor=2, num_cpus_per_actor=0.25, start_timeout_s=1.0)
    with pytest.raises(ResourceError, match=r"no actor of 0.25 CPU, 2 GPU started in \d s; there is 1 node"):
        list(waiting.map(DoerSpec(), [("echo", 1)]))


def test_closing_the_iterator_ends_the_actors(shared_pool: RayPool) -> None:
    iterator = shared_pool.map(DoerSpec(), (("sleep", 0.05, None) for _ in itertools.count()))
    next(iterator)
    living_before = num_living_actors()
    iterator.close()
    assert eventually(lambda: num_living_actors() == living_before - 1)
    assert [outcome.value for outcome in shared_pool.map(DoerSpec(), [("echo", 1)])] == [1]


def test_close_ends_only_its_own_actors(open_pool: Callable[..., RayPool]) -> None:
    kept, closed = (open_pool(num_cpus_per_actor=0.25) for _ in range(2))
    for pool in (kept, closed):
        list(pool.map(AdderSpec(1), [1]))
    living_before = num_living_actors()
    closed.close()
    assert eventually(lambda: num_living_actors() == living_before - 1)
    assert ray.is_initialized()
    assert [outcome.value for outcome in kept.map(AdderSpec(1), [2])] == [3]
    assert kept.num_builds == 1


DRIVER = """
import psutil
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from tests.unit.fleet.fleet_engines import DoerSpec
with make_pool(PoolConfig(address="local")) as pool:
    for outcome in pool.map(DoerSpec(), [("see",)] + [("sleep", 60.0, None)] * 3):
        worker = outcome.value["pid"]
        others = {process.pid for process in psutil.Process().children(recursive=True)} - {worker}
        print(worker, *others, flush=True)
"""


def start_driver() -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry)])
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER], env={**environment, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )


def test_nothing_outlives_the_driver() -> None:
    drivers = {number: start_driver() for number in (signal.SIGINT, signal.SIGKILL)}
    for number, driver in drivers.items():
        assert driver.stdout is not None
        worker, *others = (int(pid) for pid in driver.stdout.readline().split())
        assert len(others) >= 3
        driver.send_signal(number)
        driver.communicate(timeout=60)
        assert driver.returncode != 0
        # After SIGKILL nobody is left to end Ray's own agents; they notice within a minute or so.
        gone = [worker, *others] if number is signal.SIGINT else [worker]
        assert eventually(lambda gone=gone: not any(psutil.pid_exists(pid) for pid in gone), timeout_s=20.0)


STOPPED = """
import os, signal, sys, time
sys.path[:0] = sys.argv[1:]
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.commands.common import ended, set_up

def act():
    try:
        with make_pool(PoolConfig(kind="ray", address="local")):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    except KeyboardInterrupt:
        # Longer than Ray's own handler would let the process live.
        time.sleep(4)
        raise
    return 0

set_up()
sys.exit(ended(act))
"""


def test_sigterm_interrupts_and_does_not_abort() -> None:
    command = [sys.executable, "-c", STOPPED, *sys.path]
    stopped = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.splitlines()[-1].startswith("interrupted; run the same command again")


def test_make_pool_uses_the_connection_of_this_process(connection: Connection) -> None:
    with make_pool(PoolConfig(num_cpus_per_actor=0.25)) as pool:
        assert [outcome.value for outcome in pool.map(AdderSpec(1), [1])] == [2]
    assert ray.is_initialized()
