"""A finished sweep of the organism with CoTs after unlearning, to be judged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fairwitness.experiment.job import Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.fur.sweep import FurSweep
from fairwitness.organisms.shipped import organism_path
from fairwitness.organisms.supplies import LOADERS
from tests.helpers.sweeps import config_of

LR = 3e-3


def organism_settings(output: Path, **changes: Any) -> dict[str, Any]:
    """Plain settings of a sweep of the organism over ten problems."""
    base = {
        "name": "small",
        "models": [{"model": str(organism_path()), "name": "organism"}],
        "data_sets": [{"data_set": "organism", "num_problems": 10, "num_held_out": 4}],
        "rates": [LR, 1e-4],
        "cot": {"max_new_tokens": 40},
        "measure": {"cot_after": True, "disagreeing": True},
        "pool": {"kind": "local"},
        "output": {"dir": str(output)},
        "tracking": {"enabled": False},
    }
    return {**base, **changes}


@pytest.fixture(scope="session")
def _swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = config_of(organism_settings(tmp_path_factory.mktemp("judged")))
    return run_measure(FurSweep(config, Supplies(LOADERS)), lambda _measure: Report((), ())).run.path


@pytest.fixture
def swept(_swept: Path, tmp_path: Path) -> Path:
    """A copy of the run directory, for one test."""
    return Path(shutil.copytree(_swept, tmp_path / "small"))
