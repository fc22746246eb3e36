"""General capability of a finished sweep. Runs with `python` and with `ray job submit`."""

from __future__ import annotations

from fairwitness.commands.start import main

if __name__ == "__main__":
    main("fur_capability")
