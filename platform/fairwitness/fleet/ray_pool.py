"""The pool on Ray: actors pinned to the devices that Ray assigns, replaced when they die."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from fairwitness.errors import FairwitnessError, ModelError, ResourceError
from fairwitness.fleet import cluster
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.crew import Crew, Member, Phase, cause_of_death
from fairwitness.fleet.feed import Feed, Ticket
from fairwitness.fleet.placement import ClusterView, Need, is_on_a_node, refusal, what_there_is
from fairwitness.fleet.pool import EngineSpec, Outcome
from fairwitness.fleet.worker import Loaded, Reply, describe

_log = logging.getLogger(__name__)
_LOOK_S = 5.0
_INFEASIBLE_LOOKS = 3


class StartWatch:
    """Raises when the cluster cannot give an actor, or has not in time."""

    def __init__(self, config: PoolConfig, connection: cluster.Connection) -> None:
        self._config = config
        self._connection = connection
        self._need = Need(config.num_cpus_per_actor, config.num_gpus_per_actor)
        self._has_warned = False
        self.restart()

    def restart(self) -> None:
        """Starts the clock anew: an actor runs, or the wait begins."""
        self._since_s = self._looked_at_s = time.monotonic()
        self._num_infeasible = 0

    def refuse(self) -> ClusterView:
        """Looks at the cluster and returns what it has.

        Raises:
            ResourceError: It can never hold `min_actors` actors.
        """
        view = cluster.look(self._connection)
        reason = refusal(self._need, self._config.min_actors, view)
        if reason is not None:
            raise ResourceError(f"{reason}; ask for less, or use another cluster")
        return view

    def check(self) -> None:
        """To be called often while no actor runs.

        Raises:
            ResourceError: None ever can, or the time is up.
        """
        now_s = time.monotonic()
        waited_s = now_s - self._since_s
        is_late = waited_s >= self._config.start_timeout_s
        if now_s - self._looked_at_s < _LOOK_S and not is_late:
            return
        self._looked_at_s = now_s
        view = self.refuse()
        if not is_on_a_node(self._need, view):
            self._ask_the_autoscaler()
        if self._num_infeasible >= _INFEASIBLE_LOOKS:
            raise ResourceError(f"the autoscaler has no node for an actor of {self._need}; {what_there_is(view)}")
        if is_late:
            raise ResourceError(f"no actor of {self._need} started in {waited_s:.0f} s; {what_there_is(view)}")

    def _ask_the_autoscaler(self) -> None:
        if not self._has_warned:
            _log.warning("no node can hold an actor of %s yet; waiting for the autoscaler", self._need)
            self._has_warned = True
        resources = {"CPU": self._need.num_cpus, "GPU": self._need.num_gpus}
        self._num_infeasible = self._num_infeasible + 1 if cluster.reported_infeasible(resources) else 0


_POLL_S = 1.0
_FETCH_S = 5.0


class _Heard(NamedTuple):
    """What actors reported: settled items, and why the call of `map` cannot go on, if so."""

    outcomes: list[Outcome]
    failure: FairwitnessError | None


class RayPool:
    """Runs items on actors that keep their engine between calls of `map`.

    Actors are started up to `max_actors` while items wait (pending ones are the demand that an autoscaler sees), and
    those beyond `min_actors` are ended when they are not wanted any more: pending ones when no item waits, running ones
    after `idle_timeout_s` without work while a call of `map` goes on. Between calls they are kept, with their engines.

    A call of `map` that is left early (the iterator closed, an interrupt) ends all actors, and one that raises an error
    those that are busy, because what they are doing is not wanted any more; the next call starts new ones. One call of
    `map` runs at a time.
    """

    def __init__(self, config: PoolConfig, connection: cluster.Connection | None = None) -> None:
        """Connects and starts `min_actors` actors without waiting; a `connection` that is given is left open.

        Raises:
            ResourceError: No cluster, or one that can never hold `min_actors` actors.
        """
        self._config = config
        self._connection = connection or cluster.connect(config.address, log_to_driver=config.log_to_driver)
        self._is_connection_ours = connection is None
        self._crew = Crew(config, self._connection.actor_env)
        self._watch = StartWatch(config, self._connection)
        self._num_builds = 0
        self._num_failed_starts = 0
        self._is_mapping = False
        try:
            self._watch.refuse()
            self._crew.start(config.min_actors)
        except BaseException:
            self.close()
            raise

    @property
    def num_builds(self) -> int:
        """How many engines have been built since the pool was made, over all actors, dead ones included."""
        return self._num_builds

    def map(self, spec: EngineSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        """See `Pool.map`.

        At most twice `in_flight_per_actor` items per actor of `max_actors` are drawn beyond the outcomes taken. An item
        fails when `max_attempts` actors died under it. Each of the items that a dead actor held is retried alone, so
        that one item that kills workers does not take others with it.

        Raises:
            ResourceError: What an actor needs can never be given, or no actor started in `start_timeout_s`.
            ModelError: The engine cannot be built, or building it ended `max_attempts` actors in a row. Another
                `FairwitnessError` of `build` is raised as it is.
            RuntimeError: Another call of `map` has not ended.
        """
        if self._is_mapping:
            raise RuntimeError("one call of map at a time: exhaust or close the iterator of the last one first")
        self._is_mapping = True
        feed = Feed(items, self._config.depth * self._config.max_actors)
        try:
            self._crew.set_spec(spec)
            self._watch.restart()
            yield from self._run(feed)
        except Exception:
            self._crew.end_busy()
            raise
        except BaseException:
            self._crew.end_all()
            raise
        finally:
            self._is_mapping = False

    def close(self) -> None:
        """Closes idle engines, ends the actors of this pool, and Ray if the pool started it."""
        if ray.is_initialized():
            self._crew.close()
        if self._is_connection_ours:
            self._connection.close()

    def _run(self, feed: Feed) -> Iterator[Outcome]:
        while True:
            self._crew.dispatch(feed)
            if feed.is_done:
                return
            heard = self._wait(feed)
            if heard.outcomes and heard.failure is None:
                # Keep the actors busy while the caller deals with the outcomes.
                self._crew.dispatch(feed)
            yield from heard.outcomes
            if heard.failure is not None:
                raise heard.failure

    def _wait(self, feed: Feed) -> _Heard:
        """Waits until something happens, or for a moment, and says what became of which items."""
        owners = {ref: member for member in self._crew.members for ref in member.refs}
        ready, _ = ray.wait(list(owners), num_returns=1, timeout=_POLL_S)
        if any(member.phase is not Phase.STARTING for member in self._crew.members):
            self._watch.restart()
        elif not ready:
            self._watch.check()
        if ready:
            ready, _ = ray.wait(list(owners), num_returns=len(owners), timeout=0)
        outcomes: list[Outcome] = []
        failure: FairwitnessError | None = None
        for ref in ready:
            member = owners[ref]
            if member not in self._crew.members or ref not in member.refs:
                continue
            try:
                outcomes.extend(self._hear(feed, member, ref))
            except FairwitnessError as error:
                # What the others have done is not lost.
                failure = failure or error
        return _Heard(outcomes, failure)

    def _hear(self, feed: Feed, member: Member, ref: Any) -> list[Outcome]:
        try:
            if ref in member.tickets:
                return [_settle(feed, member, ref, _fetch_reply(ref))]
            self._hear_pending(member, ray.get(ref))
        except RayTaskError as error:
            # The worker could not even read the spec.
            reason = f"{type(self._crew.spec).__name__} cannot be built in a worker: {describe(error.cause or error)}"
            self._hear_pending(member, Loaded(False, ModelError(reason), str(error)))
        except RayError as error:
            return self._bury(feed, member, error)
        return []

    def _hear_pending(self, member: Member, answer: Any) -> None:
        """Notes that an actor runs, or that it has loaded an engine; raises why it has not."""
        member.become_ready()
        if not isinstance(answer, Loaded):
            _log.debug("%s runs: %s", member.name, answer)
            return
        if answer.details:
            _log.error("engine not built on %s\n%s", member.name, answer.details)
        if answer.error is None:
            self._num_failed_starts = 0
            self._num_builds += int(answer.built)
            return
        is_wanted, member.generation = member.generation == self._crew.generation, -1
        if is_wanted:
            raise answer.error

    def _bury(self, feed: Feed, member: Member, error: RayError) -> list[Outcome]:
        """Takes a dead actor off the list and puts its items back, or fails those that have had their attempts."""
        cause = cause_of_death(error)
        _log.warning("%s died: %s", member.name, cause)
        self._crew.members.remove(member)
        if isinstance(error, ActorUnavailableError):
            member.end()
        outcomes, lost = _collect(feed, member)
        if member.phase is not Phase.READY:
            self._count_failed_start(member, cause)
        is_preempted = isinstance(error, RayActorError) and error.preempted
        for ticket in reversed(lost):
            ticket.num_deaths += int(not is_preempted)
            if ticket.num_deaths < self._config.max_attempts:
                feed.put_back(ticket)
            else:
                outcomes.append(_give_up(feed, member, ticket, cause))
        return outcomes

    def _count_failed_start(self, member: Member, cause: str) -> None:
        self._num_failed_starts += 1
        if self._num_failed_starts < self._config.max_attempts:
            return
        number = self._num_failed_starts
        if member.phase is Phase.STARTING:
            raise ResourceError(f"{number} workers in a row could not start; the last one: {cause}")
        name = type(self._crew.spec).__name__
        raise ModelError(f"{number} workers in a row died while building {name}; the last one: {cause}")


def _fetch_reply(ref: Any) -> Reply:
    """The reply of `Worker.run`; an error outside the engine (an item or result that cannot be sent) is one too."""
    try:
        reply: Reply = ray.get(ref, timeout=_FETCH_S)
    except RayTaskError as error:
        return Reply(None, describe(error.cause or error), str(error))
    return reply


def _collect(feed: Feed, member: Member) -> tuple[list[Outcome], list[Ticket]]:
    """Splits a dead actor's items into those whose result came before its death and the others, oldest first."""
    outcomes, lost = [], []
    for ref in list(member.tickets):
        try:
            outcomes.append(_settle(feed, member, ref, _fetch_reply(ref)))
        except RayError:
            lost.append(member.tickets[ref])
    return outcomes, lost


def _settle(feed: Feed, member: Member, ref: Any, reply: Reply) -> Outcome:
    ticket = member.tickets.pop(ref)
    now_s = member.since_s = time.monotonic()
    feed.settle()
    if reply.details:
        _log.error("item %d failed on %s\n%s", ticket.index, member.name, reply.details)
    duration_s = now_s - ticket.handed_at_s
    return Outcome(ticket.index, reply.value, reply.error, ticket.num_attempts, member.name, duration_s)


def _give_up(feed: Feed, member: Member, ticket: Ticket, cause: str) -> Outcome:
    feed.settle()
    reason = f"{ticket.num_deaths} worker(s) died under this item; the last one: {cause}"
    duration_s = time.monotonic() - ticket.handed_at_s
    return Outcome(ticket.index, None, reason, ticket.num_attempts, member.name, duration_s)
