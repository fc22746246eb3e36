"""Work that may not fit into memory."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

_log = logging.getLogger(__name__)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_SETTINGS = {_MMAP_THRESHOLD: 32 * 2**20, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 * 2**20}
"""The mmap threshold is the largest that glibc takes."""


def keep_freed_memory() -> bool:
    """Tells glibc not to hand large buffers back to the system as soon as they are freed, and says whether it agreed.

    Passes of different shapes otherwise ask for fresh pages over and over, each of which the system fills with zeros: a
    tenth of the time on a CPU. The peak of memory stays what it is. Other C libraries are left alone.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        _log.debug("no mallopt in this C library")
        return False
    agreed = [mallopt(name, value) == 1 for name, value in _SETTINGS.items()]
    return all(agreed)


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
