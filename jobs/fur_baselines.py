"""Other measures of faithfulness on a finished sweep. Runs with `python`, `ray job submit`, or `--pool local`."""

from __future__ import annotations

from fairwitness.launch.baselines import fur_baselines

if __name__ == "__main__":
    fur_baselines.main()
