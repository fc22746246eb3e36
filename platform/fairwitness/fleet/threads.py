"""Threads for arithmetic in the current process, whatever library does it."""

from __future__ import annotations

import os

import threadpoolctl

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def limit_threads(num_threads: int) -> None:
    """Sets the number of threads: by environment for libraries still to be loaded, directly for those already there.

    Child processes inherit the limit. Ray by itself sets only OMP_NUM_THREADS, and leaves a value that it finds.
    """
    for name in _VARIABLES:
        os.environ[name] = str(num_threads)
    threadpoolctl.threadpool_limits(limits=num_threads)
