"""Judges the CoTs that a sweep's models wrote after unlearning. Runs with `python` or with `ray job submit`."""

from __future__ import annotations

from fairwitness.launch.judge import fur_judge

if __name__ == "__main__":
    fur_judge.main()
