"""The example configurations in jobs/configs, and the job that each one is for."""

from __future__ import annotations

from pathlib import Path

from fairwitness.config import Config, load_config
from fairwitness.errors import ConfigError
from fairwitness.jobs import JOBS

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "jobs/configs").glob("*.yaml"))


def jobs_of(path: Path) -> list[str]:
    """The jobs that take a configuration; an example should fit exactly one."""
    return [name for name, job in JOBS.items() if _loads(job.config_class, path)]


def _loads(cls: type[Config], path: Path) -> bool:
    try:
        load_config(cls, path)
    except ConfigError:
        return False
    return True


SWEEPS = [path for path in CONFIGS if jobs_of(path) == ["fur_sweep"]]
