"""The worker: a plain class that holds one engine. `LocalPool` owns one; `RayPool` makes actors of it."""

from __future__ import annotations

import os
import socket
import traceback
from dataclasses import dataclass
from typing import Any

import threadpoolctl

from fairwitness.errors import FairwitnessError, ModelError
from fairwitness.fleet.pool import Engine, EngineSpec

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def limit_threads(num_threads: int) -> None:
    """Sets the number of threads: by environment for libraries still to be loaded, directly for those already there.

    Child processes inherit the limit. Ray by itself sets only OMP_NUM_THREADS, and leaves a value that it finds.
    """
    for name in _VARIABLES:
        os.environ[name] = str(num_threads)
    threadpoolctl.threadpool_limits(limits=num_threads)


@dataclass(frozen=True)
class WorkerInfo:
    """Where a worker runs.

    Attributes:
        devices: Value of CUDA_VISIBLE_DEVICES in the worker; empty when it sees no GPU.
    """

    host: str
    pid: int
    devices: str


@dataclass(frozen=True)
class Loaded:
    """Result of `Worker.load`.

    Attributes:
        built: Whether an engine was built (False: the one held was built from an equal spec).
        error: Why none could be built, or None.
        details: Traceback of an unexpected error, for the log; empty otherwise.
    """

    built: bool
    error: FairwitnessError | None = None
    details: str = ""


@dataclass(frozen=True)
class Reply:
    """Result of `Worker.run`: the value, or one line that says why there is none and a traceback for the log."""

    value: Any
    error: str | None = None
    details: str = ""


def one_line(text: str, limit: int = 500) -> str:
    """The text with every run of white space as one space, cut at `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def describe(error: BaseException) -> str:
    """One line for an error: the message of an expected one, type and message of any other."""
    if isinstance(error, FairwitnessError):
        return one_line(str(error)) or type(error).__name__
    return one_line(f"{type(error).__name__}: {error}").removesuffix(":")


class Worker:
    """Holds at most one engine and runs items on it, one at a time."""

    def __init__(self, num_threads: int, hide_gpus: bool) -> None:
        """Prepares the process before any numeric library is loaded."""
        # Ray hides GPUs only from a worker that has some.
        limit_threads(num_threads)
        if hide_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._num_threads = num_threads
        self._spec: EngineSpec | None = None
        self._engine: Engine | None = None

    def info(self) -> WorkerInfo:
        """Where this worker runs and what it sees."""
        return WorkerInfo(socket.gethostname(), os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def load(self, spec: EngineSpec) -> Loaded:
        """Makes sure that the engine of `spec` is held; another one is closed first. Never raises an `Exception`."""
        if self._engine is not None and self._spec == spec:
            return Loaded(built=False)
        try:
            self.close()
            self._engine = spec.build()
        except FairwitnessError as error:
            return Loaded(built=False, error=error)
        except Exception as error:  # noqa: BLE001 (whatever a model library raises ends the job with one message)
            reason = f"{type(spec).__name__} cannot be built: {describe(error)}"
            return Loaded(built=False, error=ModelError(reason), details=traceback.format_exc())
        limit_threads(self._num_threads)
        self._spec = spec
        return Loaded(built=True)

    def run(self, item: Any) -> Reply:
        """Runs one item on the engine held. An `Exception` of the engine is a reply, not a raise."""
        if self._engine is None:
            raise RuntimeError("Worker.run before Worker.load")
        try:
            return Reply(self._engine.run(item))
        except FairwitnessError as error:
            return Reply(None, describe(error))
        except Exception as error:  # noqa: BLE001 (one item fails, the others go on)
            return Reply(None, describe(error), traceback.format_exc())

    def close(self) -> None:
        """Closes the engine held, if any."""
        engine, self._engine, self._spec = self._engine, None, None
        if engine is not None:
            engine.close()
