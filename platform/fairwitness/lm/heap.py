"""Keeps memory that the C library's allocator has freed, for the next pass."""

from __future__ import annotations

import ctypes
import logging
import sys

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
