from __future__ import annotations

import io
import re
import threading
import time

import pytest
from rich.console import Console

from fairwitness.records.progress import BEAT_S, Progress, at_work, duration


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


def test_a_name_in_brackets_is_text() -> None:
    out = io.StringIO()
    with Progress(1, "a [/b] on [i]c[/i]", console=Console(file=out, force_terminal=True, width=100)) as progress:
        progress.advance(1)
    assert out.getvalue().count("a [/b] on [i]c[/i]") >= 2


def test_nothing_to_do() -> None:
    out = io.StringIO()
    with Progress(0, "tasks", console=Console(file=out)) as progress:
        pass
    assert progress.num_done == 0
    assert out.getvalue().splitlines()[1].startswith("tasks: 0 of 0, in ")


def wait_for(out: io.StringIO, num_lines: int) -> list[str]:
    until_s = time.monotonic() + 20
    while len(lines := out.getvalue().splitlines()) < num_lines and time.monotonic() < until_s:
        time.sleep(0.01)
    return lines


def test_signs_of_life_before_and_after_the_first_item() -> None:
    out = io.StringIO()
    with Progress(4, "tasks", console=Console(file=out), every_s=0.05) as progress:
        before = wait_for(out, 3)
        progress.advance(2)
        after = wait_for(out, len(out.getvalue().splitlines()) + 2)
    assert all(re.fullmatch(r"tasks: 0 of 4, in \d+\.\d s", line) for line in before[1:3])
    assert re.fullmatch(r"tasks: 2 of 4, in \d+\.\d s, [\d.e+]+/s, about \d+ s left", after[-1])
    # Silence afterwards.
    number = len(out.getvalue())
    time.sleep(0.2)
    assert len(out.getvalue()) == number
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]


def test_time_left_goes_by_weight_where_items_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fairwitness.records.progress.time.monotonic", lambda: now[0])
    out = io.StringIO()
    with Progress(11, "tasks", weight=100.0, console=Console(file=out)) as progress:
        now[0] = 60.0
        progress.count(["ok"], weight=90.0)
        progress._beat()
        progress.advance(10, weight=10.0)
        progress._beat()
    first, last = out.getvalue().splitlines()[1:3]
    # One of 11 items, but nine tenths of the work: 60 s / 90 * 10.
    assert first == "tasks: 1 of 11, in 60.0 s, 0.0167/s, about 7 s left"
    assert last.endswith("about 0 s left")


def test_one_line_a_minute_is_the_most() -> None:
    assert BEAT_S == 60.0
    out = io.StringIO()
    with Progress(100, "tasks", console=Console(file=out), every_s=0.4) as progress:
        began_s = time.monotonic()
        for _ in range(100):
            progress.advance(1)
            time.sleep(0.01)
        took_s = time.monotonic() - began_s
    assert len(out.getvalue().splitlines()) <= 2 + took_s / 0.4


def test_a_terminal_has_the_bar_alone() -> None:
    out = io.StringIO()
    with Progress(4, "tasks", console=Console(file=out, force_terminal=True, width=80), every_s=0.01):
        time.sleep(0.1)
        assert "heartbeat" not in [thread.name for thread in threading.enumerate()]


def test_work_without_items_shows_signs_of_life_and_nothing_when_it_is_short() -> None:
    out = io.StringIO()
    with at_work("held-out answers", console=Console(file=out)):
        pass
    assert out.getvalue() == ""
    with at_work("held-out answers", console=Console(file=out), every_s=0.05):
        lines = wait_for(out, 1)
    assert lines[0] == "held-out answers: at work for 0 s"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
