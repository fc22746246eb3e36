"""Progress of a job on stderr: items done, rate, time left, skipped and failed; a sign of life where it counts none."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

BEAT_S = 60.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """A bar on a terminal; elsewhere a line at the start, one a minute, and one at the end.

    Leaves a clean line after Ctrl-C.
    """

    def __init__(
        self,
        total: int,
        label: str,
        *,
        weight: float | None = None,
        console: Console | None = None,
        every_s: float = BEAT_S,
    ) -> None:
        """Makes a display that `with` starts, for `total` items: those that a resumed job skips are not counted.

        Where items take unequal time, `weight` is what all weigh together and the time left follows the weight done.
        Without a terminal a line is printed every `every_s` seconds.
        """
        self.total, self.label = total, label
        self.num_ok = self.num_skipped = self.num_failed = 0
        self._weight, self._weight_done = weight, 0.0
        self._console = console or Console(file=sys.stderr)
        self._every_s, self._beating = every_s, ExitStack()
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[trouble]}"),
        )
        self._bar = Bar(*columns, console=self._console, transient=True, refresh_per_second=4)
        self._task = self._bar.add_task(label, total=total, rate="", left="", trouble="")
        self._began_s = time.monotonic()

    @property
    def num_done(self) -> int:
        """Items dealt with, whatever became of them."""
        return self.num_ok + self.num_skipped + self.num_failed

    def __enter__(self) -> Self:
        """Shows the bar, or the first line."""
        self._began_s = time.monotonic()
        if self._console.is_terminal:
            self._bar.start()
        else:
            self._line(f"{self.label}: {self.total} to do")
            self._beating.enter_context(heartbeat(self._beat, every_s=self._every_s))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the bar and prints the last line."""
        self._beating.close()
        if self._console.is_terminal:
            self._bar.stop()
        end = "" if error is None else "; stopped before the end"
        self._line(f"{self.label}: {self.summary()}{end}")

    def advance(self, ok: int = 0, *, skipped: int = 0, failed: int = 0, weight: float = 0.0) -> None:
        """Counts items that are done: measured, skipped and failed ones, each separately, and what they weigh."""
        self._weight_done += weight
        self.num_ok += ok
        self.num_skipped += skipped
        self.num_failed += failed
        self._bar.update(
            self._task, completed=self.num_done, rate=self._rate(), left=self._left(), trouble=self._trouble()
        )

    def count(self, statuses: Iterable[str], *, weight: float = 0.0) -> None:
        """Counts finished items by status, and what they weigh."""
        number = Counter(statuses)
        self.advance(number["ok"], skipped=number["skipped"], failed=number["failed"], weight=weight)

    def summary(self) -> str:
        """One line: how many of how many, trouble, time and rate."""
        took_s = time.monotonic() - self._began_s
        parts = [f"{self.num_done} of {self.total}", self._trouble(), f"in {took_s:.1f} s", self._rate()]
        return ", ".join(part for part in parts if part)

    def _beat(self) -> None:
        left = self._left()
        self._line(f"{self.label}: {self.summary()}{f', {left}' if left else ''}")

    def _left(self) -> str:
        took_s = time.monotonic() - self._began_s
        done, total = (self.num_done, self.total) if self._weight is None else (self._weight_done, self._weight)
        return f"about {duration(max(0.0, total - done) * took_s / done)} left" if done else ""

    def _rate(self) -> str:
        took_s = time.monotonic() - self._began_s
        return f"{self.num_done / took_s:.3g}/s" if self.num_done and took_s > 0 else ""

    def _trouble(self) -> str:
        counts = ((self.num_skipped, "skipped"), (self.num_failed, "failed"))
        return ", ".join(f"{count} {what}" for count, what in counts if count)

    def _line(self, text: str) -> None:
        _print(self._console, text)


@contextmanager
def at_work(label: str, *, console: Console | None = None, every_s: float = BEAT_S) -> Iterator[None]:
    """For work without items to count: a spinner on a terminal, elsewhere a line a minute and nothing before."""
    console = console or Console(file=sys.stderr)
    began_s = time.monotonic()

    def beat() -> None:
        _print(console, f"{label}: at work for {duration(time.monotonic() - began_s)}")

    with console.status(label) if console.is_terminal else heartbeat(beat, every_s=every_s):
        yield


@contextmanager
def heartbeat(beat: Callable[[], None], *, every_s: float = BEAT_S) -> Iterator[None]:
    """Calls `beat` again and again while the block runs, from a thread: one group of tasks may take many minutes."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def duration(seconds: float) -> str:
    """A time for people: `75 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
