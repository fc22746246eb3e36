"""What a pool of workers promises, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Engine(Protocol):
    """Owns whatever is expensive to load. Lives in one worker until another spec replaces it."""

    def run(self, item: Any) -> Any:
        """Does one item of work and returns a picklable result.

        Raises:
            FairwitnessError: The item cannot be done; it is not retried.
        """

    def close(self) -> None:
        """Frees what the engine holds."""


class EngineSpec(Protocol):
    """A small, picklable, hashable recipe for an engine. Equal specs give equal engines."""

    def build(self) -> Engine:
        """Loads the engine. Runs in the worker."""


@dataclass(frozen=True)
class Outcome:
    """What became of one item.

    Attributes:
        index: Position of the item in the iterable given to `Pool.map`.
        value: What `Engine.run` returned; None when there is an error.
        error: None, or one line that says why the item was not done.
        num_attempts: How often the item was handed to a worker (1 when nothing died).
        worker: Name of the worker that finished it, for logs.
        duration_s: Seconds from the last hand-out to the result.
    """

    index: int
    value: Any
    error: str | None
    num_attempts: int
    worker: str
    duration_s: float


class Pool(Protocol):
    """Runs items on workers that keep their engine between calls."""

    def map(self, spec: EngineSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        """Yields one outcome per item, in the order they finish; each exactly once.

        Items are drawn lazily: at most a few per worker are in flight (back-pressure). A worker that dies is replaced
        and its item handed to another, up to the retry limit; then the outcome carries the error. A worker loads
        an engine when the spec differs from the one it holds and keeps it for the next call of `map`.

        Raises:
            ResourceError: What a worker needs can never be given.
            ModelError: The engine cannot be built (raised once, not per item).
        """

    @property
    def num_builds(self) -> int:
        """How many engines have been built since the pool was made, over all workers."""

    def close(self) -> None:
        """Ends the workers that this pool started, and nothing else."""
