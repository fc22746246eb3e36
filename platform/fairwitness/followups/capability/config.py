"""Configuration of the measurement of general capability on a finished sweep."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.experiment.config import FollowConfig
from fairwitness.fur.config import Rate
from fairwitness.lm.config import EngineConfig
from fairwitness.problems.config import DataConfig


class FurCapabilityConfig(FollowConfig):
    """General capability before and after unlearning each step of a few CoTs of a finished sweep."""

    lr: Literal["selected"] | Rate = "selected"
    """Learning rate: `selected` for the one that the rule selects for each model, data set and method, or a number."""
    data_set: DataConfig = DataConfig(data_set="mmlu")
    """The questions; all of them, or `num_problems` drawn by the sweep's seed. `num_held_out` is not used."""
    num_cots: int = Field(10, ge=1)
    """CoTs whose every eligible step is unlearned, drawn by the sweep's seed from the problems that count."""
    engine: EngineConfig | None = None
    """How the engine uses its device; null takes the sweep's."""
