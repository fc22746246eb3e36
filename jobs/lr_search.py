"""Search for learning rates. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

from fairwitness.launch.lr_search import lr_search

if __name__ == "__main__":
    lr_search.main()
