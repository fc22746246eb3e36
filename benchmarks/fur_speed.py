"""Speed reach: seconds per task of the engine against the straightforward way (straightforward.py) on the same tasks.

Run: `PYTHONPATH=platform:schemas python benchmarks/fur_speed.py [--workload organism|llama30m] [--threads N]`. Each
side has a process of its own; only one of them works at a time, and they take turns, so that other load on the
machine hits both. CPU seconds (user and system) stand beside wall seconds: they hardly depend on other load. The
straightforward way runs on a sample of the tasks, evenly spread over their lengths. Neither side's time has the start
of the process or the base model's answers; the straightforward way's has the loading of its two models, because it
loads them for each task.

Targets: 20 times as fast on the organism, 8 times on the 30M model, 500 times fewer model calls, 60% of the machine's
rate of matrix products on the 30M model.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairwitness.lm.engine import ModelSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from machine import GemmRate, Report, Stopwatch, load, peak_bytes
from straightforward import Length, PlainRecord, unlearn_one
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import LlamaConfig, LlamaModel
from workloads import SHAPES, Workload, make_workload

from fairwitness.fleet.worker import limit_threads
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import TaskResult
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.config import EngineConfig

TARGET_RATIO = {"organism": 20.0, "llama30m": 8.0}
TURNS = {"organism": 3, "llama30m": 1}
TARGET_CALLS, TARGET_SHARE = 500.0, 0.6


def _attention_flops(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward_flops(grad: Any, query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


# torch counts attention on a GPU only. Like torch, this counts the masked half too.
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}


@dataclass
class Side:
    """What one side has done so far."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    num_tasks: int = 0
    num_calls: int = 0
    num_flops: int = 0
    peak_bytes: int = 0
    results: dict[str, Any] = field(default_factory=dict)

    def add(self, other: Side) -> None:
        """Adds a part; peaks are not added up."""
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.num_tasks += other.num_tasks
        self.num_calls += other.num_calls
        self.num_flops += other.num_flops
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.results.update(other.results)


class _Process:
    """State of a worker process: its engine, and how often a transformer was called."""

    engine: Any = None
    num_calls = 0


def prepare(num_threads: int, spec: ModelSpec | None) -> None:
    """Runs first in a worker process: threads, the count of calls, and for the engine's side the engine."""
    limit_threads(num_threads)
    torch.set_num_threads(num_threads)
    forward = LlamaModel.forward

    @functools.wraps(forward)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _Process.num_calls += 1
        return forward(*args, **kwargs)

    LlamaModel.forward = counted
    if spec is not None:
        _Process.engine = spec.build()


def run_engine(group: UnlearnGroup, *, is_counted: bool = False) -> Side:
    """One group in the engine's process; with `is_counted` the FLOPs are counted too (slower, so not to be timed)."""
    return _measured(len(group.tasks), lambda: {r.task_key: r for r in _Process.engine.run(group)}, is_counted)


def count_engine(group: UnlearnGroup) -> Side:
    """FLOPs of one group: of the first iteration, and of the others, which are like the second."""
    recipe = group.recipe
    parts = []
    for number in (1, 2):
        short = dataclasses.replace(group, recipe=recipe.model_copy(update={"num_iterations": number}))
        parts.append(run_engine(short, is_counted=True))
    first, both = parts
    both.num_flops = first.num_flops + (recipe.num_iterations - 1) * (both.num_flops - first.num_flops)
    return both


def run_plainly(workload: Workload, numbers: Sequence[int], length: Length) -> Side:
    """Tasks one after another in the straightforward way's process."""

    def work() -> dict[str, list[PlainRecord]]:
        tasks = [workload.tasks[number] for number in numbers]
        return {
            t.task_key: unlearn_one(workload.folder, t, RecipeConfig(), workload.lr, workload.held_out, length)
            for t in tasks
        }

    return _measured(len(numbers), work, False)


def count_plainly(workload: Workload, number: int, length: Length) -> Side:
    """FLOPs of one task: those of one iteration, times the number of iterations, because they are all alike."""
    task, recipe = workload.tasks[number], RecipeConfig()
    once = recipe.model_copy(update={"num_iterations": 1})
    side = _measured(
        1, lambda: {"": unlearn_one(workload.folder, task, once, workload.lr, workload.held_out, length)}, True
    )
    side.num_flops *= recipe.num_iterations
    return side


def _measured(num_tasks: int, work: Any, is_counted: bool) -> Side:
    calls, watch = _Process.num_calls, Stopwatch()
    counter = FlopCounterMode(display=False, custom_mapping=_ATTENTION) if is_counted else None
    with watch:
        if counter is None:
            results = work()
        else:
            with counter:
                results = work()
    flops = counter.get_total_flops() if counter else 0
    return Side(watch.wall_s, watch.cpu_s, num_tasks, _Process.num_calls - calls, flops, peak_bytes(), results)


@contextmanager
def worker(num_threads: int, spec: ModelSpec | None) -> Iterator[ProcessPoolExecutor]:
    """A process of its own for one side."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=prepare, initargs=(num_threads, spec)) as executor:
        yield executor


@dataclass(frozen=True)
class Outcome:
    """Both sides: the timed parts, and one untimed part each whose FLOPs were counted."""

    ours: Side
    plain: Side
    ours_counted: Side
    plain_counted: Side
    gemm: GemmRate


def compare(workload: Workload, args: argparse.Namespace, report: Report) -> Outcome:
    """Runs both sides in turns."""
    engine = EngineConfig(group_size=args.group_size, **({"max_tokens": args.max_tokens} if args.max_tokens else {}))
    groups = workload.groups(args.group_size)
    length = Length(args.stop_at_eos)
    shape = LlamaConfig.from_pretrained(workload.folder)
    limit_threads(args.threads)
    torch.set_num_threads(args.threads)
    ours, plain = Side(), Side()
    with worker(args.threads, ModelSpec(workload.model, engine)) as engine_process, worker(args.threads, None) as other:
        ours_counted = engine_process.submit(count_engine, groups[-1]).result()
        plain_counted = other.submit(count_plainly, workload, len(workload.tasks) // 2, length).result()
        gemm = GemmRate(shape.hidden_size, shape.intermediate_size, engine.max_tokens)
        for number, group in enumerate(groups):
            gemm.measure()
            part = engine_process.submit(run_engine, group).result()
            ours.add(part)
            gemm.measure()
            first, size = number * args.group_size, len(group.tasks)
            count = min(args.sample, size)
            sample = [first + (2 * i + 1) * size // (2 * count) for i in range(count)]
            other_part = other.submit(run_plainly, workload, sample, length).result()
            plain.add(other_part)
            report.say(
                f"turn {number + 1} of {len(groups)}: engine {part.wall_s / size:.2f} s/task, "
                f"straightforward {other_part.wall_s / count:.2f} s/task, {load()}"
            )
            gemm.measure()
    return Outcome(ours, plain, ours_counted, plain_counted, gemm)


def agreement(ours: Side, plain: Side) -> tuple[float, float]:
    """Share of equal predictions, and the median difference of the step's mean log-probability at the end, in nats."""
    equal, differences = [], []
    for key, records in plain.results.items():
        result: TaskResult = ours.results[key]
        for one, other in zip(result.measured, records, strict=True):
            pairs = zip((one.index, *one.held_out), (other.index, *other.held_out), strict=True)
            equal += [a == b for a, b in pairs]
        differences.append(abs(result.measured[-1].cot_step_logprob - records[-1].cot_step_logprob))
    return sum(equal) / len(equal), statistics.median(differences)


def describe(workload: Workload, outcome: Outcome, args: argparse.Namespace, report: Report) -> bool:
    """Prints the table and whether the targets are met."""
    ours, plain, gemm = outcome.ours, outcome.plain, outcome.gemm
    counted = (outcome.ours_counted, outcome.plain_counted)
    flops = [side.num_flops / side.num_tasks for side in counted]
    wall = [side.wall_s / side.num_tasks for side in (ours, plain)]
    cpu = [side.cpu_s / side.num_tasks for side in (ours, plain)]
    calls = [side.num_calls / side.num_tasks for side in (ours, plain)]
    rate, cpu_rate = flops[0] / wall[0], flops[0] / cpu[0]
    share, cpu_share = rate / gemm.layer_rate, cpu_rate / gemm.layer_cpu_rate
    report.table(
        [workload.name, "engine", "straightforward", "ratio"],
        [
            ["wall s per task", *(f"{v:.3f}" for v in wall), f"{wall[1] / wall[0]:.1f}"],
            ["CPU s per task", *(f"{v:.3f}" for v in cpu), f"{cpu[1] / cpu[0]:.1f}"],
            ["model calls per task", *(f"{v:.2f}" for v in calls), f"{calls[1] / calls[0]:.0f}"],
            ["GFLOP per task", *(f"{v / 1e9:.1f}" for v in flops), f"{flops[1] / flops[0]:.2f}"],
            ["peak memory, MB", *(f"{side.peak_bytes / 1e6:.0f}" for side in (ours, plain)), ""],
            ["tasks timed", ours.num_tasks, plain.num_tasks, ""],
        ],
    )
    report.say(
        f"engine: {rate / 1e9:.0f} GFLOP/s; float32 matrix products of a layer's shapes, {gemm.num_tokens} rows: "
        f"{gemm.layer_rate / 1e9:.0f} GFLOP/s, 2048x2048: {gemm.square_rate / 1e9:.0f} GFLOP/s"
    )
    report.say(f"share of the layer's rate: {share:.0%} of wall time, {cpu_share:.0%} by CPU time")
    same, difference = agreement(ours, plain)
    report.say(
        f"same predictions (bfloat16 against float32): {same:.1%} of {len(plain.results)} tasks x 5 x 21; the "
        f"step's mean log-probability at the end differs by {difference:.2g} nats (median)"
    )
    met = {
        f"{TARGET_RATIO[workload.name]:g}x": wall[1] / wall[0] >= TARGET_RATIO[workload.name],
        f"{TARGET_CALLS:g}x fewer calls": calls[1] / calls[0] >= TARGET_CALLS,
    }
    if workload.name == "llama30m":
        met[f"{TARGET_SHARE:.0%} of the rate"] = share >= TARGET_SHARE
    report.say("targets: " + ", ".join(f"{name}: {'met' if ok else 'MISSED'}" for name, ok in met.items()))
    return all(met.values())


def main() -> int:
    """Runs one workload; returns 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(SHAPES), default="organism")
    parser.add_argument("--turns", type=int, help="groups of tasks that are timed; by default 3, or 1 with llama30m")
    parser.add_argument("--group-size", type=int, default=32, help="K, tasks per group; by default the engine's most")
    parser.add_argument("--sample", type=int, default=2, help="tasks per group that the straightforward way runs")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--max-tokens", type=int, help="padded tokens per pass; by default the engine's default")
    parser.add_argument("--stop-at-eos", action="store_true", help="straightforward generation may end early")
    parser.add_argument("--trial", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    args.turns = args.turns or TURNS[args.workload]
    report = Report(f"fur_speed_{args.workload}", is_kept=not args.trial)
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(args.workload, Path(folder) / "model", args.turns * args.group_size)
        lengths = [len(task.forget.ids) for task in workload.tasks]
        report.say(
            f"{workload.note}; {len(workload.tasks)} tasks, forgotten sequences of {min(lengths)} to {max(lengths)} "
            f"tokens; K = {args.group_size}, {args.threads} threads"
        )
        end = "at EOS" if args.stop_at_eos else "at its limit, never at EOS"
        report.say(f"straightforward: generation ends {end}; the engine writes no CoT after unlearning (its default)")
        outcome = compare(workload, args, report)
    met = describe(workload, outcome, args, report)
    report.close()
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
