"""Random draws about one item: the same however many others there are, and in whatever order they come."""

from __future__ import annotations

import numpy as np

from fairwitness.config import fingerprint


def item_rng(seed: int, *item: str | int) -> np.random.Generator:
    """A generator that depends on the run's seed and the item's name alone."""
    return np.random.default_rng(int(fingerprint([seed, *item]), 16))
