"""Settings of a pool of workers."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from fairwitness.config import Config


class PoolConfig(Config):
    """How many workers there are, what each of them gets, and when to give up."""

    kind: Literal["ray", "local"] = "ray"
    """`ray`: actors on a Ray cluster or on this machine. `local`: one worker in this process, without Ray."""

    address: str | None = None
    """Ray address. None: `RAY_ADDRESS` if it is set (a submitted job has it), else a Ray of our own on this machine.
    `local`: always a Ray of our own. `auto`: the cluster that runs on this machine."""

    num_gpus_per_actor: float = Field(default=0.0, ge=0.0, le=1024.0)
    """GPUs that each actor gets; a fraction shares one GPU. With 0 an actor sees no GPU."""

    num_cpus_per_actor: float = Field(default=1.0, ge=0.0, le=4096.0)
    """CPUs that each actor reserves."""

    num_threads: int | None = Field(default=None, ge=1, le=4096)
    """Threads of each worker for arithmetic, the same for `ray` and `local`. None: `num_cpus_per_actor` rounded down,
    at least 1."""

    min_actors: int = Field(default=1, ge=1, le=100_000)
    """Actors that are kept. A cluster that can never hold them is an error at once."""

    max_actors: int = Field(default=1, ge=1, le=100_000)
    """Actors that there are at most. Those beyond `min_actors` are asked for while items wait."""

    in_flight_per_actor: int = Field(default=2, ge=1, le=64)
    """Items that an actor may hold: one that runs, the others already there when it ends."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    """Workers that may die under an item (by a crash or lack of memory) before it counts as failed. With 1 nothing is
    retried, and `in_flight_per_actor` counts as 1."""

    start_timeout_s: float = Field(default=600.0, gt=0.0)
    """Seconds to wait for the first actor, while none runs, before that is an error (a cloud node takes minutes)."""

    idle_timeout_s: float = Field(default=60.0, ge=0.0)
    """Seconds after which an actor beyond `min_actors` that no item waits for is ended while others still work."""

    log_to_driver: bool = False
    """Print what the actors print."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_actors < self.min_actors:
            raise ValueError(f"max_actors ({self.max_actors}) is below min_actors ({self.min_actors})")
        if self.num_gpus_per_actor > 1 and not float(self.num_gpus_per_actor).is_integer():
            raise ValueError(f"num_gpus_per_actor is {self.num_gpus_per_actor:g}; above 1 it must be a whole number")
        return self

    @property
    def most_workers(self) -> int:
        """Workers that there are at most: `max_actors`, or the one of a `local` pool."""
        return 1 if self.kind == "local" else self.max_actors

    @property
    def depth(self) -> int:
        """How many items an actor may hold."""
        return self.in_flight_per_actor if self.max_attempts > 1 else 1

    @property
    def threads(self) -> int:
        """The number of threads that `num_threads` stands for."""
        return self.num_threads or max(1, math.floor(self.num_cpus_per_actor))
