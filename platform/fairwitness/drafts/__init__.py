"""Thinking drafts: does the draft follow its own steps, and does the answer follow the draft."""
