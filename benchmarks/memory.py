"""Memory reach: the estimate that `--dry-run` prints against the peak that a group really needs.

Run: `PYTHONPATH=platform:schemas python benchmarks/memory.py [--cases NAME ...]`. Each case has a fresh process,
which loads the model, asks the engine for its estimate, unlearns one group (two iterations: the later ones need no
more), and reads the peak of its resident memory from the system. Target: the estimate is within 20% of the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fairwitness.lm.engine import ModelSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from machine import Report, peak_bytes, reset_peak
from workloads import make_workload

from fairwitness.fleet.worker import limit_threads
from fairwitness.fur.config import LoraConfig, RecipeConfig
from fairwitness.fur.memory import CapacityItem
from fairwitness.lm.config import EngineConfig

TARGET = 0.2


@dataclass(frozen=True)
class Case:
    """A group of `group_size` tasks."""

    workload: str
    group_size: int
    rank: int | None = None
    max_tokens: int | None = None


CASES = {
    "organism K=32": Case("organism", 32),
    "llama30m K=4": Case("llama30m", 4),
    "llama30m K=8": Case("llama30m", 8),
    "llama30m K=8, 1024 tokens": Case("llama30m", 8, max_tokens=1024),
    "llama30m K=8, LoRA rank 8": Case("llama30m", 8, rank=8),
    "llama30m K=8, LoRA rank 128": Case("llama30m", 8, rank=128),
    "llama30m K=32, LoRA rank 32": Case("llama30m", 32, rank=32),
}


def run_case(case: Case, num_threads: int) -> dict[str, float]:
    """Runs one case in this process."""
    limit_threads(num_threads)
    torch.set_num_threads(num_threads)
    recipe = RecipeConfig(num_iterations=2)
    if case.rank:
        recipe = recipe.model_copy(update={"method": LoraConfig(rank=case.rank)})
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(case.workload, Path(folder) / "model", case.group_size)
        other = {"max_tokens": case.max_tokens} if case.max_tokens else {}
        config = EngineConfig(group_size=case.group_size, **other)
        engine = ModelSpec(workload.model, config).build()
        (group,) = workload.groups(case.group_size, recipe)
        questions = tuple(item.question for item in workload.held_out)
        capacity = engine.run(CapacityItem(workload.tasks[0], recipe, questions))
        reset_peak()
        errors = [result.error for result in engine.run(group) if result.error]
    if errors:
        raise SystemExit(errors[0])
    return {"estimate": capacity.peak_bytes, "before": capacity.process_bytes, "peak": peak_bytes()}


def run_apart(name: str, num_threads: int) -> dict[str, float]:
    """Runs one case in a fresh process."""
    command = [sys.executable, str(Path(__file__)), "--alone", name, "--threads", str(num_threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Prints the table; returns 1 when an estimate is too far off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--alone", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--trial", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(run_case(CASES[args.alone], args.threads)))
        return 0
    report = Report("memory", is_kept=not args.trial)
    rows, worst = [], 0.0
    for name in args.cases:
        found = run_apart(name, args.threads)
        error = found["estimate"] / found["peak"] - 1
        worst = max(worst, abs(error))
        sizes = [f"{found[key] / 1e6:.0f}" for key in ("before", "estimate", "peak")]
        rows.append([name, *sizes, f"{error:+.0%}"])
    report.table(["case", "before, MB", "estimate, MB", "peak, MB", "error"], rows)
    report.say(f"target: within {TARGET:.0%}: {'met' if worst <= TARGET else 'MISSED'}")
    report.close()
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
