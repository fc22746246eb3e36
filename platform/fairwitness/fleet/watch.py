"""Watches, while no actor runs, whether one ever can."""

from __future__ import annotations

import logging
import time

from fairwitness.errors import ResourceError
from fairwitness.fleet import cluster
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.placement import ClusterView, Need, is_on_a_node, refusal, what_there_is

_log = logging.getLogger(__name__)
_LOOK_S = 5.0
_INFEASIBLE_LOOKS = 3


class StartWatch:
    """Raises when the cluster cannot give an actor, or has not in time."""

    def __init__(self, config: PoolConfig, connection: cluster.Connection) -> None:
        """Looks at nothing yet."""
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
