"""Ray reach: what the pool on Ray with one actor adds to the wall time of the pool without Ray.

Run: `PYTHONPATH=platform:schemas python benchmarks/ray_overhead.py [--tasks 200] [--threads N]`. Both pools unlearn
the same groups of the organism's tasks with the same number of threads, in turns, the later one first in the next
turn. Start of Ray and of the engines is stated separately. CPU seconds are those of this process and, for Ray, of all
processes of its own Ray too. Target: at most 5% more wall time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray gives its workers a lower priority than this process has; beside other work that would compare priorities.
os.environ.setdefault("RAY_worker_niceness", "0")

import psutil
from machine import Report, load
from workloads import Workload, make_workload

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.local import LocalPool
from fairwitness.fleet.pool import Pool
from fairwitness.fleet.ray_pool import RayPool
from fairwitness.fur.config import EngineConfig
from fairwitness.fur.engine import FurSpec
from fairwitness.fur.tasks import UnlearnGroup

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


def run(timed: Timed, spec: FurSpec, groups: Sequence[UnlearnGroup]) -> dict[str, object]:
    """Unlearns the groups and gives what was measured, by task."""
    wall_s, cpu_s = time.perf_counter(), cpu_seconds()
    outcomes = list(timed.pool.map(spec, groups))
    timed.wall_s += time.perf_counter() - wall_s
    timed.cpu_s += cpu_seconds() - cpu_s
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if errors:
        raise SystemExit(f"{timed.name}: {errors[0]}")
    return {result.task_key: result.measured for outcome in outcomes for result in outcome.value}


def started(name: str, config: PoolConfig, spec: FurSpec, first: UnlearnGroup) -> Timed:
    """A pool that has loaded its engine and run one task."""
    start_s = time.perf_counter()
    pool: Pool = RayPool(config) if config.kind == "ray" else LocalPool(config)
    timed = Timed(name, pool)
    run(timed, spec, [first])
    return Timed(name, pool, time.perf_counter() - start_s)


def compare(workload: Workload, args: argparse.Namespace, report: Report) -> tuple[Timed, Timed, bool]:
    """Runs both pools in turns; also says whether they gave the same."""
    spec = FurSpec(workload.model, EngineConfig(group_size=args.group_size))
    settings = {"num_cpus_per_actor": args.threads, "num_threads": args.threads}
    first = workload.groups(1)[-1]
    local = started("local", PoolConfig(kind="local", **settings), spec, first)
    ray = started("ray", PoolConfig(kind="ray", address="local", **settings), spec, first)
    is_same = True
    try:
        groups = workload.groups(args.group_size)
        size = -(-len(groups) // args.turns)
        for turn, start in enumerate(range(0, len(groups), size)):
            order = (local, ray) if turn % 2 == 0 else (ray, local)
            one, other = (run(timed, spec, groups[start : start + size]) for timed in order)
            is_same = is_same and one == other
            report.say(f"turn {turn + 1}: local {local.wall_s:.1f} s, ray {ray.wall_s:.1f} s so far, {load()}")
    finally:
        ray.pool.close()
        local.pool.close()
    return local, ray, is_same


def main() -> int:
    """Prints a line per turn and the table; returns 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--group-size", type=int, default=20, help="K, tasks per group; a group is what Ray is handed")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--trial", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    report = Report("ray_overhead", is_kept=not args.trial)
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload("organism", Path(folder) / "model", args.tasks)
        report.say(f"{workload.note}; {args.tasks} tasks in groups of {args.group_size}, {args.threads} threads")
        local, ray, is_same = compare(workload, args, report)
    added = ray.wall_s / local.wall_s - 1
    rows = [[t.name, f"{t.start_s:.1f}", f"{t.wall_s:.2f}", f"{t.cpu_s:.2f}"] for t in (local, ray)]
    report.table(["pool", "start, s", "wall, s", "CPU, s"], rows)
    added_cpu = ray.cpu_s / local.cpu_s - 1
    report.say(f"Ray adds {added:+.1%} wall time, {added_cpu:+.1%} CPU time; the same results: {is_same}")
    met = added <= TARGET
    report.say(f"target: at most {TARGET:.0%}: {'met' if met else 'MISSED'}")
    report.close()
    return int(not (met and is_same))


if __name__ == "__main__":
    sys.exit(main())
