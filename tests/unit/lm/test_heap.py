"""Whether the C library keeps freed memory. What that gains is for benchmarks/fur_speed.py: it depends on the heap."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from fairwitness.lm.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc only")
def test_glibc_agrees_and_memory_still_works() -> None:
    # In a process of its own: the setting cannot be taken back.
    script = (
        "import torch\n"
        "from fairwitness.lm.memory import keep_freed_memory\n"
        "agreed = [keep_freed_memory(), keep_freed_memory()]\n"
        "total = sum(float(torch.ones(2**22).sum()) for _ in range(8))\n"
        "print(agreed, total)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[True, True] {8.0 * 2**22}"


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
