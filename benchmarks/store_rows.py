"""Store reach: a million `unlearning` rows written, the store reopened for resuming, and the rows aggregated.

Run: `python benchmarks/store_rows.py [--rows 1000000]`. Writes to a temporary folder and removes it. Target: under
10 s and 2 GB. Making the rows is not counted in the time; it is counted in the memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairwitness.records.store import Store
from fairwitness_schemas import TABLES

ITERATIONS, LETTERS, HELD_OUT, ROWS_PER_CALL = 5, 4, 20, 50_000


def main() -> int:
    """Prints one line per stage and the totals; returns 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    num_rows = parser.parse_args().rows
    generator = np.random.default_rng(0)
    write, resume, aggregate = Stopwatch(), Stopwatch(), Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        size_bytes = _write(Path(folder), num_rows, generator, write)
        with resume:
            num_tasks = len(Store(folder).finished_keys("unlearning"))
        with aggregate:
            num_means = _aggregate(Path(folder))
    total_s = write.wall_s + resume.wall_s + aggregate.wall_s
    cpu_s = write.cpu_s + resume.cpu_s + aggregate.cpu_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"rows {num_rows:,}, parts on disk {size_bytes / 1e6:.0f} MB")
    print(f"write {write}")
    print(f"reopen and resume scan {resume}: {num_tasks:,} finished tasks")
    print(f"aggregate {aggregate}: {num_means} means of a cell and iteration")
    print(f"total {total_s:.2f} s (CPU {cpu_s:.2f} s), peak memory {peak_bytes / 1e9:.2f} GB (target: 10 s, 2 GB)")
    return int(total_s >= 10 or peak_bytes >= 2e9)


class Stopwatch:
    """Adds up the wall and CPU time of the blocks that it is the context of."""

    def __init__(self) -> None:
        """Starts at zero."""
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> None:
        """Starts a block."""
        self.wall_s -= time.perf_counter()
        self.cpu_s -= time.process_time()

    def __exit__(self, *_: object) -> None:
        """Ends a block."""
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()

    def __str__(self) -> str:
        """Both times, in seconds."""
        return f"{self.wall_s:.2f} s (CPU {self.cpu_s:.2f} s)"


def _write(root: Path, num_rows: int, generator: np.random.Generator, watch: Stopwatch) -> int:
    store = Store(root)
    for start in range(0, num_rows, ROWS_PER_CALL):
        rows = make_rows(start // ITERATIONS, min(ROWS_PER_CALL, num_rows - start), generator)
        with watch:
            store.append_table("unlearning", rows)
    with watch:
        store.close()
    return sum(part.stat().st_size for part in root.rglob("*.parquet"))


def _aggregate(root: Path) -> int:
    columns = ["cell_key", "iteration", "problem_key", "efficacy", "specificity", "flipped", "cot_step_logprob"]
    rows = Store(root, create=False).read("unlearning", columns, pc.field("status") == "ok")
    means = rows.group_by(["cell_key", "iteration"]).aggregate(
        [("efficacy", "mean"), ("specificity", "mean"), ("cot_step_logprob", "mean"), ([], "count_all")]
    )
    rows.group_by(["cell_key", "problem_key"]).aggregate([("flipped", "any")])
    return int(means.num_rows)


def make_rows(first_task: int, num_rows: int, generator: np.random.Generator) -> pa.Table:
    """Rows as a sweep makes them: 5 iterations a task, 4 letters, 20 held-out answers, keys of 32 digits."""
    task = first_task + np.arange(num_rows) // ITERATIONS
    iteration = (np.arange(num_rows) % ITERATIONS + 1).astype(np.int32)
    problem, cell = task // 8 % 250, task // 2000
    columns = {
        "key": _keys("k", task * ITERATIONS + iteration),
        "task_key": _keys("t", task),
        "cell_key": _keys("c", cell),
        "scope_key": _keys("s", cell // 5),
        "attempt": np.ones(num_rows, np.int32),
        "iteration": iteration,
        "model": _repeat("org/some-model-8b", num_rows),
        "data_set": _repeat("arc_challenge", num_rows),
        "problem_id": [f"Mercury_{number}" for number in problem],
        "problem_key": _keys("p", problem),
        "cot_key": _keys("o", problem + 250 * (cell // 5)),
        "cot_step_index": (task % 8).astype(np.int32),
        "method": _repeat("ff2", num_rows),
        "lr": 1e-6 * 2.0 ** (cell % 5),
        "seed": np.zeros(num_rows, np.int64),
        "base_letter": _letters(problem),
        "base_probs": _lists(generator.dirichlet(np.ones(LETTERS), num_rows)),
        "predicted_letter": _letters(generator.integers(0, LETTERS, num_rows)),
        "probs": _lists(generator.dirichlet(np.ones(LETTERS), num_rows)),
        "flipped": generator.random(num_rows) < 0.3,
        "num_held_out": np.full(num_rows, HELD_OUT, np.int32),
        "held_out_letters": _held_out(num_rows, generator),
        "group_size": np.full(num_rows, 32, np.int32),
        "worker": _repeat("worker-0", num_rows),
        "status": _repeat("ok", num_rows),
    }
    return _complete(columns, num_rows, generator)


def _complete(columns: dict[str, object], num_rows: int, generator: np.random.Generator) -> pa.Table:
    schema = TABLES["unlearning"].schema
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        elif pa.types.is_floating(field.type):
            arrays.append(pa.array(generator.random(num_rows)))
        else:
            arrays.append(pa.nulls(num_rows, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _keys(prefix: str, numbers: npt.NDArray[np.int64]) -> list[str]:
    return [f"{prefix}{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**124:031x}" for number in numbers.tolist()]


def _letters(numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(list("ABCD")).take(pa.array(numbers % LETTERS))


def _lists(values: npt.NDArray[np.float64]) -> pa.Array:
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * LETTERS)
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))


def _held_out(num_rows: int, generator: np.random.Generator) -> pa.Array:
    offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32) * HELD_OUT)
    return pa.ListArray.from_arrays(offsets, _letters(generator.integers(0, LETTERS, num_rows * HELD_OUT)))


def _repeat(value: str, num_rows: int) -> pa.Array:
    return pa.repeat(value, num_rows)


if __name__ == "__main__":
    sys.exit(main())
