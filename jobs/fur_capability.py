"""General capability (for example MMLU) before and after unlearning steps of a finished sweep."""

from __future__ import annotations

from fairwitness.launch.capability import fur_capability

if __name__ == "__main__":
    fur_capability.main()
