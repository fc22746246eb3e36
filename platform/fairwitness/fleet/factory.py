"""Makes the pool that a configuration asks for."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.pool import EngineSpec, Outcome, Pool
from fairwitness.fleet.worker import Worker

_log = logging.getLogger(__name__)


class LocalPool:
    """Runs items one after another in this process, with the semantics of `RayPool` with one actor.

    Of the settings only `num_threads` (or `num_cpus_per_actor`) applies; with `max_actors` above 1 there is still one
    worker. The limit on threads stays in force after `close`. A call of `map` that is left early keeps the engine.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Makes the worker; no engine is built yet."""
        self._worker = Worker(config.threads, hide_gpus=False)
        self._num_builds = 0
        self._is_mapping = False

    @property
    def num_builds(self) -> int:
        """How many engines have been built since the pool was made."""
        return self._num_builds

    def map(self, spec: EngineSpec, items: Iterable[Any]) -> Iterator[Outcome]:
        """See `Pool.map`. Items are drawn one at a time and finish in their order.

        Raises:
            ModelError: The engine cannot be built. Another `FairwitnessError` of `build` is raised as it is.
            RuntimeError: Another call of `map` has not ended.
        """
        if self._is_mapping:
            raise RuntimeError("one call of map at a time: exhaust or close the iterator of the last one first")
        self._is_mapping = True
        try:
            for index, item in enumerate(items):
                if index == 0:
                    self._load(spec)
                yield self._run(index, item)
        finally:
            self._is_mapping = False

    def close(self) -> None:
        """Closes the engine. The pool can be used again; it then builds a new one."""
        self._worker.close()

    def _run(self, index: int, item: Any) -> Outcome:
        start_s = time.perf_counter()
        reply = self._worker.run(item)
        if reply.details:
            _log.error("item %d failed\n%s", index, reply.details)
        return Outcome(index, reply.value, reply.error, 1, "local", time.perf_counter() - start_s)

    def _load(self, spec: EngineSpec) -> None:
        loaded = self._worker.load(spec)
        if loaded.details:
            _log.error("engine not built\n%s", loaded.details)
        if loaded.error is not None:
            raise loaded.error
        self._num_builds += int(loaded.built)


@contextmanager
def make_pool(config: PoolConfig) -> Iterator[Pool]:
    """Opens a pool and closes it at the end of the block, whatever happens in it.

    Ray is imported only for `kind: ray`.

    Raises:
        ResourceError: No cluster, or one that can never hold the actors asked for.
    """
    pool = _open(config)
    try:
        yield pool
    finally:
        pool.close()


def _open(config: PoolConfig) -> Pool:
    if config.kind == "local":
        return LocalPool(config)
    from fairwitness.fleet.ray_pool import RayPool

    return RayPool(config)
