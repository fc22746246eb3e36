"""A small model with thinking drafts: how it meets inserted steps, and its own drafts, is known by construction."""
