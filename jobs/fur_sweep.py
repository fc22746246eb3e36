"""FUR over models × data sets × rates. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

from fairwitness.launch.sweep import fur_sweep

if __name__ == "__main__":
    fur_sweep.main()
