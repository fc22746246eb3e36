"""Search for the learning rate. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

from fairwitness.commands.start import main

if __name__ == "__main__":
    main("lr_search")
