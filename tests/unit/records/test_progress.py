from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from fairwitness.records.progress import Progress


def test_two_lines_when_not_a_terminal() -> None:
    out = io.StringIO()
    with Progress(4, "tasks", console=Console(file=out)) as progress:
        for _ in range(2):
            progress.advance(1)
        progress.advance(skipped=1)
        progress.advance(failed=1)
    first, last = out.getvalue().splitlines()
    assert first == "tasks: 4 to do"
    assert re.fullmatch(r"tasks: 4 of 4, 1 skipped, 1 failed, in \d+\.\d s, [\d.e+]+/s", last)


def test_an_interrupted_job_leaves_a_clean_last_line() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with pytest.raises(KeyboardInterrupt), Progress(3, "tasks", console=console) as progress:  # noqa: PT012
        progress.advance(1)
        raise KeyboardInterrupt
    assert re.search(r"tasks: 1 of 3, in \d+\.\d s, .*/s; stopped before the end\n$", out.getvalue())
    assert out.getvalue().count("\x1b[?25h") == 1  # the cursor is shown again


def test_a_terminal_sees_counts_rate_and_trouble() -> None:
    out = io.StringIO()
    with Progress(10, "tasks", console=Console(file=out, force_terminal=True, width=120)) as progress:
        progress.advance(5, failed=2)
        progress._bar.refresh()
    assert "7/10" in out.getvalue()
    assert "2 failed" in out.getvalue()


def test_nothing_to_do() -> None:
    out = io.StringIO()
    with Progress(0, "tasks", console=Console(file=out)) as progress:
        pass
    assert progress.num_done == 0
    assert out.getvalue().splitlines()[1].startswith("tasks: 0 of 0, in ")
