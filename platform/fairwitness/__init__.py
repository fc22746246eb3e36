"""fairwitness: is a model's written reasoning the reasoning it uses?

`fw.load("results/demo")` gives the results of a run as data frames; `fw.sweep(config)` and its neighbours run a job.
Nothing heavy is imported before one of them is called.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairwitness.version import __version__

if TYPE_CHECKING:
    from fairwitness.api import Run, Settings

__all__ = ["__version__", "baselines", "capability", "judge", "load", "run", "search", "sweep"]


def load(path: str | os.PathLike[str]) -> Run:
    """The results of a run directory as data frames; see `fairwitness.api.Run`.

    Raises:
        StoreError: There is no run here.
    """
    from fairwitness.api import load

    return load(path)


def run(job: str, config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Runs any job by its command, for example `fw.run("drafts", "drafts_thinker.yaml")`; see `fairwitness.api.run`."""
    from fairwitness.api import run

    return run(job, config, overrides)


def sweep(config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Runs a FUR sweep, or what is left of it; see `fairwitness.api.run` for arguments and errors."""
    return run("sweep", config, overrides)


def search(config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Searches for learning rates; see `fairwitness.api.run`."""
    return run("search", config, overrides)


def judge(config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Has the CoTs after unlearning judged, on a finished sweep; see `fairwitness.api.run`."""
    return run("judge", config, overrides)


def baselines(config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Measures other measures of faithfulness on a finished sweep; see `fairwitness.api.run`."""
    return run("baselines", config, overrides)


def capability(config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Measures general capability before and after unlearning, on a finished sweep; see `fairwitness.api.run`."""
    return run("capability", config, overrides)
