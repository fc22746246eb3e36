"""The Python API behind `import fairwitness as fw`: results as data frames, and jobs from a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fairwitness.analysis.columns import COLUMNS
from fairwitness.analysis.frames import FRAMES, Results
from fairwitness.commands.start import ready, run_job
from fairwitness.config import Config, load_config
from fairwitness.jobs import JOBS
from fairwitness.records.run_dir import RunDirectory

if TYPE_CHECKING:
    from fairwitness.experiment.job import JobResult

Settings = str | os.PathLike[str] | Mapping[str, Any] | Config
"""A configuration: the path of a YAML file, a mapping as YAML gives it, or a configuration object."""


class Run:
    """What a run directory holds, as data frames with the same figures as the report.

    Each frame is computed when it is first asked for. `columns` says what its columns mean. An undefined value is
    missing, and the column named `…_reason` beside it says why.

    Attributes:
        result: What became of the job, where `fw.sweep` and friends have just run it: exit code, counts, findings.
    """

    runs: pd.DataFrame
    """A row per start of a job on the run."""
    summary: pd.DataFrame
    """A row per model and data set: the chosen rate and what it shows, health."""
    rates: pd.DataFrame
    """A row per model, data set, method and rate: efficacy, specificity, ff-hard, ff-soft, with intervals and n."""
    steps: pd.DataFrame
    """A row per unlearned step and rate: ff_soft, flips, efficacy, text."""
    problems: pd.DataFrame
    """A row per problem and rate: answers of the base model, ff-hard, ff-soft."""
    cots: pd.DataFrame
    """A row per chain of thought."""
    trials: pd.DataFrame
    """A row per rate that a search tried."""
    drafts: pd.DataFrame
    """A row per thinking draft."""
    continuations: pd.DataFrame
    """A row per continuation of a changed draft, with its verdict."""
    draft_rates: pd.DataFrame
    """A row per rate of faithfulness of drafts, with intervals."""
    baselines: pd.DataFrame
    """A row per other measure beside ff-hard."""
    capability: pd.DataFrame
    """A row per rate: accuracy before and after unlearning."""
    judgements: pd.DataFrame
    """A row per judge and rate."""
    ratings: pd.DataFrame
    """A row per rated step."""

    def __init__(self, path: str | os.PathLike[str], result: JobResult | None = None) -> None:
        """Names a run directory.

        Raises:
            StoreError: There is no run here.
        """
        self.path = RunDirectory.at(os.fspath(path)).path
        self.result = result

    @cached_property
    def _results(self) -> Results:
        return Results(self.path)

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Computes a frame."""
        if name not in FRAMES:
            raise AttributeError(f"a run has no {name!r}; it has {', '.join(FRAMES)}")
        frame = FRAMES[name](self._results)
        setattr(self, name, frame)
        return frame

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *FRAMES})

    def __repr__(self) -> str:
        return f"<fairwitness run {self.path}>"

    def columns(self, frame: str) -> pd.Series[str]:
        """What the columns of a frame mean, with units.

        Raises:
            KeyError: There is no such frame.
        """
        return pd.Series(dict(COLUMNS[frame]), name=frame)

    def table(self, name: str) -> pd.DataFrame:
        """A table of the store as it is, only with the rows that count.

        Raises:
            StoreError: There is no such table.
        """
        found: pd.DataFrame = self._results.store.read(name).to_pandas()
        return found


def load(path: str | os.PathLike[str]) -> Run:
    """The results of a run directory, for example `results/demo`; a job may still be writing it.

    Raises:
        StoreError: There is no run here.
    """
    return Run(path)


def run(job: str, config: Settings, overrides: Sequence[str] = ()) -> Run:
    """Runs a job, or what is left of it, and gives its results.

    `job` is a name or command, for example `sweep`; `overrides` are `key=value` settings, as after `--set`.

    Raises:
        FairwitnessError: It cannot be run; the message says why. Failed items raise nothing: they are rows, and
            `result.exit_code` is 1.
        KeyError: There is no such job.
    """
    found = next((one for one in JOBS.values() if job in (one.name, one.command)), None)
    if found is None:
        raise KeyError(f"{job!r} is no job; there are {', '.join(one.command for one in JOBS.values())}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    if isinstance(config, Config):
        config = config.model_dump(mode="json")
    made = load_config(found.config_class, config if isinstance(config, Mapping) else Path(config), overrides)
    result = run_job(found, ready(made))
    return Run(result.run.path, result)
