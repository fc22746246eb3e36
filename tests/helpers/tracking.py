"""A finished run of FUR in MLflow, as the command `track` logs it."""

from __future__ import annotations

from pathlib import Path

from fairwitness.experiment.measure import log_cells as log_some
from fairwitness.fur.sweep import FurSweep
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.tracker import Tracker, track_stored_run


def log_cells(tracker: Tracker, run: RunDirectory) -> None:
    """Logs all cells, as a live job does."""
    log_some(tracker, FurSweep.cells(run.store(create=False), {}))


def track_run(path: Path, config: TrackingConfig) -> str | None:
    """Logs a run from its store."""

    def log(tracker: Tracker, run: RunDirectory, row: object) -> None:
        log_some(tracker, FurSweep.cells(run.store(create=False), row))  # type: ignore[arg-type]

    return track_stored_run(path, config, log)
