"""Thinking drafts: do they follow their own steps, and answers their drafts. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

from fairwitness.commands.start import main

if __name__ == "__main__":
    main("draft_faithfulness")
