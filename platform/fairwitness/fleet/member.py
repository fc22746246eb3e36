"""One actor of a `RayPool`, as the driver sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import ray
from ray.exceptions import RayError

from fairwitness.fleet.feed import Ticket
from fairwitness.fleet.worker import Worker, one_line

_OPENING = "The actor died unexpectedly before finishing this task. "


class Phase(Enum):
    """What an actor is doing."""

    STARTING = "starting"
    """Not heard of yet: it waits for resources, or its process starts."""
    LOADING = "loading"
    READY = "ready"


@dataclass(eq=False)
class Member:
    """An actor, what it holds and what it was given.

    Attributes:
        name: For logs and `Outcome.worker`.
        handle: The actor.
        phase: What it is doing.
        pending: The call that ends STARTING or LOADING.
        generation: Number of the spec whose engine it holds or loads; -1 for none.
        tickets: Items handed to it and not heard of, oldest first: the first one runs, the others queue.
        since_s: Clock when it last changed phase or settled an item.
    """

    name: str
    handle: Any
    phase: Phase
    pending: Any
    generation: int = -1
    tickets: dict[Any, Ticket] = field(default_factory=dict)
    since_s: float = field(default_factory=time.monotonic)

    @classmethod
    def start(cls, name: str, options: dict[str, Any], num_threads: int, hide_gpus: bool) -> Member:
        """Asks Ray for an actor; returns at once."""
        handle: Any = ray.remote(Worker).options(**options).remote(num_threads, hide_gpus)
        return cls(name, handle, Phase.STARTING, handle.info.remote())

    @property
    def refs(self) -> list[Any]:
        """Every call that has not been heard of."""
        return [*self.tickets, *([self.pending] if self.pending is not None else [])]

    @property
    def is_idle(self) -> bool:
        """Whether it runs and has nothing to do."""
        return self.phase is Phase.READY and not self.tickets

    def can_take(self, generation: int, limit: int) -> bool:
        """Whether it holds the engine of this generation and less than `limit` items, none of them to be alone."""
        if self.phase is not Phase.READY or self.generation != generation or len(self.tickets) >= limit:
            return False
        return not any(ticket.is_alone for ticket in self.tickets.values())

    def is_coming(self, generation: int) -> bool:
        """Whether it starts, or loads the engine of this generation."""
        return self.phase is Phase.STARTING or (self.phase is Phase.LOADING and self.generation == generation)

    def load(self, spec_ref: Any, generation: int) -> None:
        """Has it load an engine."""
        self.phase, self.generation, self.since_s = Phase.LOADING, generation, time.monotonic()
        self.pending = self.handle.load.remote(spec_ref)

    def run(self, ticket: Ticket) -> None:
        """Hands it an item."""
        self.tickets[self.handle.run.remote(ticket.item)] = ticket

    def become_ready(self) -> None:
        """Notes that the pending call has come back."""
        self.phase, self.pending, self.since_s = Phase.READY, None, time.monotonic()

    def end(self) -> None:
        """Ends the actor at once, whatever it does."""
        ray.kill(self.handle)


def cause_of_death(error: RayError) -> str:
    """One line from Ray's report of an actor's death, without the fixed opening and the actor's numbers."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    text = one_line(" ".join(lines), limit=400).removeprefix(_OPENING)
    return text or type(error).__name__
