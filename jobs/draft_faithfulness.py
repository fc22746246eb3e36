"""Faithfulness of thinking drafts. Runs with `python`, with `ray job submit`, or without Ray (`--pool local`)."""

from __future__ import annotations

from fairwitness.launch.drafts import draft_faithfulness

if __name__ == "__main__":
    draft_faithfulness.main()
