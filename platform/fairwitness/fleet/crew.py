"""The actors of a `RayPool`: starts and ends them, has them load engines, and hands items out."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

import ray

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.feed import Feed
from fairwitness.fleet.member import Member, Phase
from fairwitness.fleet.pool import EngineSpec
from fairwitness.fleet.scaling import Load, depth, num_to_end, num_to_start, num_wanted

_CLOSE_S = 5.0
_HELP_S = 30.0


class Crew:
    """All actors of one pool, and the spec whose engine they are to hold."""

    def __init__(self, config: PoolConfig, actor_env: dict[str, Any]) -> None:
        """Starts nothing yet."""
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
                most,
                is_exhausted=feed.is_exhausted,
                is_alone=feed.is_next_alone,
                is_help_coming=is_help_coming,
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
