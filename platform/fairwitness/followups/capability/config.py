"""Configuration of the measurement of general capability on a finished sweep."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.config import Config
from fairwitness.fleet.config import PoolConfig
from fairwitness.fur.config import EngineConfig, Rate
from fairwitness.problems.config import DataConfig
from fairwitness.records.tracker import TrackingConfig


class FurCapabilityConfig(Config):
    """General capability before and after unlearning each step of a few CoTs of a finished sweep."""

    run: str = Field(min_length=1)
    """Run directory of the sweep, for example results/demo; results are added to it."""
    lr: Literal["selected"] | Rate = "selected"
    """Learning rate: `selected` for the one that the rule selects for each model, data set and method, or a number."""
    data_set: DataConfig = DataConfig(data_set="mmlu")
    """The questions; all of them, or `num_problems` drawn by the sweep's seed. `num_held_out` is not used."""
    num_cots: int = Field(10, ge=1)
    """CoTs whose every eligible step is unlearned, drawn by the sweep's seed from the problems that count."""
    engine: EngineConfig | None = None
    """How the engine uses its device; null takes the sweep's."""
    pool: PoolConfig | None = None
    """The workers; null takes the sweep's."""
    tracking: TrackingConfig | None = None
    """Where MLflow is; null takes the sweep's."""
