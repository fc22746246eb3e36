"""Random draws about one item: the same however many others there are, and in whatever order they come."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fairwitness.config import fingerprint

Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""Seed of a run."""


def item_rng(seed: int, *item: str | int) -> np.random.Generator:
    """A generator that depends on the run's seed and the item's name alone."""
    return np.random.default_rng(int(fingerprint([seed, *item]), 16))
