"""What the benchmarks share: times, memory, the machine's own rate of matrix products, and the report on disk."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
import transformers

RESULTS = Path(__file__).parent / "results"


class Stopwatch:
    """Adds up wall and CPU seconds (user and system, all threads of this process) of the blocks it surrounds."""

    def __init__(self) -> None:
        """Starts at zero."""
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> Stopwatch:
        """Starts a block."""
        self.wall_s -= time.perf_counter()
        self.cpu_s -= time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends a block."""
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()


class Report:
    """Prints lines and, at the end, writes them to `results/<name>.txt`."""

    def __init__(self, name: str, *, is_kept: bool) -> None:
        """Starts with date, machine and versions."""
        self._path, self._is_kept = RESULTS / f"{name}.txt", is_kept
        self._lines: list[str] = []
        self.say(f"{name}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        self.say(f"{_cpu()}, {os.cpu_count()} cores; {load()}")
        versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
        self.say(f"Python {platform.python_version()}, {versions}")

    def say(self, line: str = "") -> None:
        """Adds one line."""
        print(line, flush=True)
        self._lines.append(line)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Adds a table, the first column to the left and the others to the right."""
        cells = [[str(cell) for cell in row] for row in [header, *rows]]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        for row in cells:
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            self.say("  ".join([row[0].ljust(len(first)), *others]).rstrip())

    def close(self) -> None:
        """Writes the file, unless the run was only a trial."""
        self.say(f"at the end: {load()}")
        if self._is_kept:
            RESULTS.mkdir(exist_ok=True)
            self._path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")


def load() -> str:
    """The load of the machine, this process included."""
    return "load " + " ".join(f"{value:.1f}" for value in os.getloadavg())


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1] for line in lines if "model name" in line]
    return " ".join(names[0].split()) if names else platform.machine()


def reset_peak() -> None:
    """Forgets the peak of this process's resident memory (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Largest resident memory of this process since the last reset (Linux)."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


class GemmRate:
    """Measures float32 matrix products: those of a decoder's layers, and large square ones.

    A layer's products, weighted as the layer has them: query, key, value and output (H×H each), gate and up (H×I each),
    down (I×H), each on `num_tokens` rows.
    """

    def __init__(self, hidden: int, intermediate: int, num_tokens: int) -> None:
        """Makes the matrices."""
        self.pairs = [(hidden, hidden)] * 4 + [(hidden, intermediate)] * 2 + [(intermediate, hidden)]
        self.num_tokens = num_tokens
        self._inputs = {width: torch.randn(num_tokens, width) for width in (hidden, intermediate)}
        self._weights = [torch.randn(a, b) for a, b in self.pairs]
        self._outputs = [torch.empty(num_tokens, b) for _, b in self.pairs]
        self._square, self._square_output = torch.randn(2048, 2048), torch.empty(2048, 2048)
        self.layer, self.square = Stopwatch(), Stopwatch()
        self._layer_flops = self._square_flops = 0
        self._run_once()
        self.layer, self.square = Stopwatch(), Stopwatch()
        self._layer_flops = self._square_flops = 0

    def measure(self, seconds: float = 2.0) -> None:
        """Runs for about this long; call it between other measurements, so that both see the same machine."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._run_once()

    @property
    def layer_rate(self) -> float:
        """FLOP/s (wall) of a layer's products."""
        return self._layer_flops / self.layer.wall_s

    @property
    def layer_cpu_rate(self) -> float:
        """FLOP per CPU second of a layer's products."""
        return self._layer_flops / self.layer.cpu_s

    @property
    def square_rate(self) -> float:
        """FLOP/s (wall) of 2048×2048 products."""
        return self._square_flops / self.square.wall_s

    def _run_once(self) -> None:
        with self.layer:
            for (inner, _), weight, output in zip(self.pairs, self._weights, self._outputs, strict=True):
                torch.mm(self._inputs[inner], weight, out=output)
        self._layer_flops += sum(2 * self.num_tokens * a * b for a, b in self.pairs)
        with self.square:
            torch.mm(self._square, self._square, out=self._square_output)
        self._square_flops += 2 * 2048**3
