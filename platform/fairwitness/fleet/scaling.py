"""Policy: how many workers to start or end, and which one gets an item. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What a pool knows when it decides.

    Attributes:
        num_waiting: Items drawn that no worker has.
        num_free: Workers that hold the right engine and no item.
        num_coming: Workers that start or load the right engine.
        num_workers: All workers, in whatever state.
    """

    num_waiting: int
    num_free: int
    num_coming: int
    num_workers: int


def num_wanted(load: Load) -> int:
    """How many more workers the waiting items could use at once."""
    return max(0, load.num_waiting - load.num_free - load.num_coming)


def num_to_start(load: Load, min_workers: int, max_workers: int) -> int:
    """How many workers to start: for waiting items up to the maximum, and always up to the minimum."""
    wanted = min(num_wanted(load), max_workers - load.num_workers)
    return max(0, wanted, min_workers - load.num_workers)


def num_to_end(num_workers: int, num_dispensable: int, min_workers: int) -> int:
    """How many of the dispensable workers to end so that the minimum stays."""
    return max(0, min(num_dispensable, num_workers - min_workers))


def depth(most: int, *, is_exhausted: bool, is_alone: bool, is_help_coming: bool) -> int:
    """How many items a worker may hold when it gets the next one.

    `most`, so that it need not wait for the driver. But one when no further items come or further workers do, so that
    no item queues behind a long one, and when the next item has to be alone.
    """
    return 1 if is_exhausted or is_alone or is_help_coming else most
