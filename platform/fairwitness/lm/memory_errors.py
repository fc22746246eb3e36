"""Work that may not fit into memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "std::bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on a GPU or a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in OUT_OF_MEMORY_WORDS)


def within_memory(work: Callable[[], T]) -> T | None:
    """What the work gives; None where memory ran out, with everything that it held freed."""
    try:
        return work()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    free_memory()
    return None


def free_memory() -> None:
    """Gives back what nothing refers to any more, on a GPU too."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
