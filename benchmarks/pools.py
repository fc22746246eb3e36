"""Times the same items on the pool without Ray and on Ray with one actor, in turns, and says what Ray adds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray gives its workers a lower priority than this process has; beside other work that would compare priorities.
os.environ.setdefault("RAY_worker_niceness", "0")

import psutil
from machine import Report, load

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import LocalPool
from fairwitness.fleet.pool import EngineSpec, Pool
from fairwitness.fleet.ray_pool import RayPool

TARGET = 0.05


@dataclass
class Timed:
    """A pool and the seconds that it has taken."""

    name: str
    pool: Pool
    start_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0


def cpu_seconds() -> float:
    """User and system seconds so far of this process and all below it."""
    process = psutil.Process()
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def run(timed: Timed, spec: EngineSpec, items: Sequence[Any]) -> list[Any]:
    """Runs the items and gives their values, in order."""
    wall_s, cpu_s = time.perf_counter(), cpu_seconds()
    outcomes = list(timed.pool.map(spec, items))
    timed.wall_s += time.perf_counter() - wall_s
    timed.cpu_s += cpu_seconds() - cpu_s
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if errors:
        raise SystemExit(f"{timed.name}: {errors[0]}")
    return [outcome.value for outcome in sorted(outcomes, key=lambda outcome: outcome.index)]


def started(name: str, config: PoolConfig, spec: EngineSpec, first: Any) -> Timed:
    """A pool that has loaded its engine and run one item."""
    start_s = time.perf_counter()
    pool: Pool = RayPool(config) if config.kind == "ray" else LocalPool(config)
    run(Timed(name, pool), spec, [first])
    return Timed(name, pool, time.perf_counter() - start_s)


def compare(
    spec: EngineSpec,
    first: Any,
    items: Sequence[Any],
    report: Report,
    *,
    turns: int,
    threads: int,
    read: Callable[[Any], object],
) -> bool:
    """Runs both pools in turns, the later one first in the next turn, and reports.

    Args:
        spec: Recipe of the engine.
        first: An item that is run before the clock starts.
        items: The items.
        report: Where lines go.
        turns: Parts that the items are cut into.
        threads: Threads of either worker.
        read: What of a value must be the same on both.

    Returns:
        Whether both gave the same and Ray added no more than the target.
    """
    settings: dict[str, Any] = {"num_cpus_per_actor": threads, "num_threads": threads}
    local = started("local", PoolConfig(kind="local", **settings), spec, first)
    ray = started("ray", PoolConfig(kind="ray", address="local", **settings), spec, first)
    is_same = True
    try:
        size = -(-len(items) // turns)
        for turn, start in enumerate(range(0, len(items), size)):
            order = (local, ray) if turn % 2 == 0 else (ray, local)
            one, other = (run(timed, spec, items[start : start + size]) for timed in order)
            is_same = is_same and list(map(read, one)) == list(map(read, other))
            report.say(f"turn {turn + 1}: local {local.wall_s:.1f} s, ray {ray.wall_s:.1f} s so far, {load()}")
    finally:
        ray.pool.close()
        local.pool.close()
    return _reported(local, ray, report, is_same=is_same)


def _reported(local: Timed, ray: Timed, report: Report, *, is_same: bool) -> bool:
    added, added_cpu = ray.wall_s / local.wall_s - 1, ray.cpu_s / local.cpu_s - 1
    rows = [[t.name, f"{t.start_s:.1f}", f"{t.wall_s:.2f}", f"{t.cpu_s:.2f}"] for t in (local, ray)]
    report.table(["pool", "start, s", "wall, s", "CPU, s"], rows)
    report.say(f"Ray adds {added:+.1%} wall time, {added_cpu:+.1%} CPU time; the same results: {is_same}")
    met = added <= TARGET
    report.say(f"target: at most {TARGET:.0%}: {'met' if met else 'MISSED'}")
    return met and is_same
