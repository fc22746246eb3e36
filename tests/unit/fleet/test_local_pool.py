"""`LocalPool` keeps the contract of pools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from tests.unit.fleet.fleet_engines import AdderSpec
from tests.unit.fleet.pool_contract import PoolContract


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    with make_pool(PoolConfig(kind="local")) as pool:
        yield pool


class TestLocalPool(PoolContract):
    """The contract, without Ray."""

    max_actors = 1
    in_flight_per_actor = 1


def test_engine_is_closed_with_the_pool(tmp_path: Path) -> None:
    with make_pool(PoolConfig(kind="local")) as pool:
        list(pool.map(AdderSpec(5, str(tmp_path / "closed")), [1]))
    assert (tmp_path / "closed").read_text(encoding="utf-8") == "5\n"


def test_engine_is_closed_after_an_error_in_the_block(tmp_path: Path) -> None:
    def interrupt(closed: Path) -> None:
        with make_pool(PoolConfig(kind="local")) as pool:
            for _ in pool.map(AdderSpec(5, str(closed)), [1, 2]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "closed")
    assert (tmp_path / "closed").exists()


def test_local_pool_does_not_import_ray() -> None:
    code = (
        "import sys\n"
        "from fairwitness.fleet.config import PoolConfig\n"
        "from fairwitness.fleet.factory import make_pool\n"
        "with make_pool(PoolConfig(kind='local')):\n"
        "    sys.exit('ray' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_more_threads_reach_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with make_pool(PoolConfig(kind="local", num_threads=3)):
        assert os.environ["OMP_NUM_THREADS"] == "3"
    with make_pool(PoolConfig(kind="local", num_cpus_per_actor=2.5)):
        assert os.environ["OMP_NUM_THREADS"] == "2"
    with make_pool(PoolConfig(kind="local", num_cpus_per_actor=0.5)):
        assert os.environ["OMP_NUM_THREADS"] == "1"
