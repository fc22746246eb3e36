"""Makes the pool that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.local import LocalPool
from fairwitness.fleet.pool import Pool


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
