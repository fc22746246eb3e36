"""The actors of a `RayPool`: starts and ends them, has them load engines, and hands items out."""

from __future__ import annotations

import itertools
import time
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import ray
from ray.exceptions import RayError

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.feed import Feed, Ticket
from fairwitness.fleet.pool import EngineSpec
from fairwitness.fleet.worker import Worker, one_line


@dataclass(frozen=True)
class Load:
    """What a pool knows when it decides.

    Attributes:
        num_waiting: Items drawn that no worker has.
        num_free: Workers that hold the right engine and no item.
        num_coming: Workers that start or load the right engine.
        num_workers: All workers, in whatever state.
    """

    num_waiting: int
    num_free: int
    num_coming: int
    num_workers: int


def num_wanted(load: Load) -> int:
    """How many more workers the waiting items could use at once."""
    return max(0, load.num_waiting - load.num_free - load.num_coming)


def num_to_start(load: Load, min_workers: int, max_workers: int) -> int:
    """How many workers to start: for waiting items up to the maximum, and always up to the minimum."""
    wanted = min(num_wanted(load), max_workers - load.num_workers)
    return max(0, wanted, min_workers - load.num_workers)


def num_to_end(num_workers: int, num_dispensable: int, min_workers: int) -> int:
    """How many of the dispensable workers to end so that the minimum stays."""
    return max(0, min(num_dispensable, num_workers - min_workers))


def depth(most: int, *, is_exhausted: bool, is_alone: bool, is_help_coming: bool) -> int:
    """How many items a worker may hold when it gets the next one.

    `most`, so that it need not wait for the driver. But one when no further items come or further workers do, so that
    no item queues behind a long one, and when the next item has to be alone.
    """
    return 1 if is_exhausted or is_alone or is_help_coming else most


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


_CLOSE_S = 5.0
_HELP_S = 30.0


class Crew:
    """All actors of one pool, and the spec whose engine they are to hold."""

    def __init__(self, config: PoolConfig, actor_env: dict[str, Any]) -> None:
        self._config = config
        self._options: dict[str, Any] = {
            "num_cpus": config.num_cpus_per_actor,
            "num_gpus": config.num_gpus_per_actor,
            "max_restarts": 0,
        }
        if actor_env:
            self._options["runtime_env"] = actor_env
        pool_id = uuid.uuid4().hex[:8]
        self._names = (f"actor-{number}-{pool_id}" for number in itertools.count())
        self._spec_ref: Any = None
        self.spec: EngineSpec | None = None
        self.generation = 0
        self.members: list[Member] = []

    def set_spec(self, spec: EngineSpec) -> None:
        """Says which engine the next items need. An equal spec changes nothing; another is sent to Ray once."""
        if self._spec_ref is None or self.spec != spec:
            self.generation += 1
            self.spec, self._spec_ref = spec, ray.put(spec)

    def dispatch(self, feed: Feed) -> None:
        """Draws, hands out, and starts or ends actors, as far as possible without waiting."""
        self._hand_out(feed, 1)
        while feed.draw():
            self._hand_out(feed, 1)
        self._load_stale(feed)
        self.start(num_to_start(self._load(feed), self._config.min_actors, self._config.max_actors))
        self._hand_out(feed, self._config.depth)
        if feed.is_exhausted and not feed.num_waiting:
            self.end_pending()
            self._end_idle()

    def start(self, number: int) -> None:
        """Asks Ray for more actors; returns at once."""
        hide_gpus = self._config.num_gpus_per_actor == 0
        for name in itertools.islice(self._names, number):
            self.members.append(Member.start(name, self._options, self._config.threads, hide_gpus))

    def end_pending(self) -> None:
        """Takes back requests for actors beyond the minimum that have not started."""
        pending = [member for member in self.members if member.phase is Phase.STARTING]
        for member in pending[: num_to_end(len(self.members), len(pending), self._config.min_actors)]:
            self._end(member)

    def end_busy(self) -> None:
        """Ends the actors that work or load, and takes back requests; idle ones keep their engine."""
        busy = [member for member in self.members if member.tickets or member.phase is Phase.LOADING]
        for member in busy:
            self._end(member)
        self.end_pending()

    def end_all(self) -> None:
        """Ends every actor at once, whatever it does."""
        while self.members:
            self.members.pop().end()

    def close(self) -> None:
        """Lets idle actors close their engine, then ends all actors and forgets the spec."""
        closing = [member.handle.close.remote() for member in self.members if member.is_idle]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        self.end_all()
        self.spec = self._spec_ref = None

    def _hand_out(self, feed: Feed, most: int) -> None:
        is_help_coming = self._is_help_coming()
        while feed.num_waiting:
            limit = depth(
                most, is_exhausted=feed.is_exhausted, is_alone=feed.is_next_alone, is_help_coming=is_help_coming
            )
            takers = [member for member in self.members if member.can_take(self.generation, limit)]
            if not takers:
                return
            min(takers, key=lambda member: len(member.tickets)).run(feed.take(time.monotonic()))

    def _is_help_coming(self) -> bool:
        """Whether an actor loads, or starts and has not been waiting for resources for long."""
        recent_s = time.monotonic() - _HELP_S
        coming = (member for member in self.members if member.is_coming(self.generation))
        return any(member.phase is Phase.LOADING or member.since_s > recent_s for member in coming)

    def _load_stale(self, feed: Feed) -> None:
        stale = [member for member in self.members if member.is_idle and member.generation != self.generation]
        for member in stale[: num_wanted(self._load(feed))]:
            member.load(self._spec_ref, self.generation)

    def _load(self, feed: Feed) -> Load:
        return Load(
            num_waiting=feed.num_waiting,
            num_free=sum(member.can_take(self.generation, 1) for member in self.members),
            num_coming=sum(member.is_coming(self.generation) for member in self.members),
            num_workers=len(self.members),
        )

    def _end_idle(self) -> None:
        idle_before_s = time.monotonic() - self._config.idle_timeout_s
        idle = [member for member in self.members if member.is_idle and member.since_s < idle_before_s]
        for member in idle[: num_to_end(len(self.members), len(idle), self._config.min_actors)]:
            self._end(member)

    def _end(self, member: Member) -> None:
        self.members.remove(member)
        member.end()
