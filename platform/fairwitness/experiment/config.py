"""What every job is told: those that make a run, and those that follow on a finished one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import Field, model_validator

from fairwitness.config import Config
from fairwitness.fleet.config import PoolConfig
from fairwitness.lm.config import ModelConfig
from fairwitness.problems.config import DataConfig
from fairwitness.problems.draws import Seed
from fairwitness.records.config import OutputConfig, RunName, TrackingConfig


class RunConfig(Config):
    """What a job that makes a run is told: its name, models, data sets, workers."""

    name: RunName
    """Name of the run. The same name goes on with an earlier run of it."""
    seed: Seed = 0
    """Seed of every random draw."""
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    """The models."""
    data_sets: tuple[DataConfig, ...] = Field(min_length=1)
    """The data sets."""
    pool: PoolConfig = PoolConfig()
    """The workers."""
    output: OutputConfig = OutputConfig()
    """Where results are written."""
    tracking: TrackingConfig = TrackingConfig()
    """Where MLflow is."""

    def must_be_models(self, key: str, names: Iterable[str]) -> None:
        """Makes sure that settings by model name models of this run.

        Raises:
            ValueError: One does not.
        """
        known = [model.shown_name for model in self.models]
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise ValueError(f"{key}: {unknown[0]!r} is no model of this run ({', '.join(known)})")

    @model_validator(mode="after")
    def _models_have_names_and_devices(self) -> Self:
        names = [model.shown_name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"models: two have the same name among {', '.join(names)}; give each a `name`")
        if self.pool.num_gpus_per_actor > 0 and all(model.device == "cpu" for model in self.models):
            raise ValueError("pool.num_gpus_per_actor is above 0, but every model has device: cpu; set device: cuda")
        if self.pool.kind == "ray" and self.pool.num_gpus_per_actor == 0:
            on_gpu = [model.shown_name for model in self.models if model.device == "cuda"]
            if on_gpu:
                raise ValueError(f"{on_gpu[0]} has device: cuda; give its actors a share: pool.num_gpus_per_actor")
        return self


class FollowConfig(Config):
    """What a job that follows on a finished run is told."""

    run: str = Field(min_length=1)
    """Directory of the run, for example results/demo. The rows go into the same store."""
    pool: PoolConfig | None = None
    """The workers; null takes the run's."""
    tracking: TrackingConfig | None = None
    """Where MLflow is; null takes the run's."""
