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
from pathlib import Path
from typing import Any

from machine import Report
from pools import compare
from workloads import make_workload

from fairwitness.lm.config import EngineConfig
from fairwitness.lm.engine import ModelSpec


def measured(results: Any) -> dict[str, object]:
    """What was measured, by task."""
    return {result.task_key: result.measured for result in results}


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
        spec = ModelSpec(workload.model, EngineConfig(group_size=args.group_size))
        items, first = workload.groups(args.group_size), workload.groups(1)[-1]
        good = compare(spec, first, items, report, turns=args.turns, threads=args.threads, read=measured)
    report.close()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
