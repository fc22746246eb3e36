"""Large buffers that are freed come back without fresh pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import resource, sys
import torch
from fairwitness.lm.heap import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill():
    kept = [torch.ones(size, 2**18) for size in (9, 20, 5, 24)]  # megabytes

fill()
before = faults()
for _ in range(10):
    fill()
print(faults() - before)
"""


def _faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, mode], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_freed_buffers_are_used_again() -> None:
    pages_per_pass = 58 * 2**20 // 4096
    assert _faults("keep") < pages_per_pass < _faults("leave")
