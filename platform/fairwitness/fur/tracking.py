"""A FUR run in MLflow, from what its store holds: a live job and `fairwitness track` log the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairwitness.analysis.cells import summarise_cells
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.tracker import Tracker, track_stored_run


def track_run(run_path: Path | str, config: TrackingConfig, artifacts: Sequence[Path] | None = None) -> str | None:
    """Logs a run from its store: everything that the job would have logged. Doing it twice changes nothing.

    Args:
        run_path: The run directory.
        config: Where to log.
        artifacts: Files to add; None for the resolved configuration, the report and its tables.

    Returns:
        The id of the parent run; None when tracking is not enabled.

    Raises:
        StoreError: There is no run, it cannot be read, or a job is writing it now.
        FairwitnessError: MLflow cannot be used.
    """
    return track_stored_run(run_path, config, _log_run, artifacts)


def _log_run(tracker: Tracker, run: RunDirectory, row: Mapping[str, Any]) -> None:
    log_cells(tracker, run, row.get("cell_keys") or None)


def log_cells(tracker: Tracker, run: RunDirectory, cell_keys: Sequence[str] | None = None) -> None:
    """Logs cells as the store has them now.

    Raises:
        StoreError: The store cannot be read.
    """
    for cell in summarise_cells(run.store(create=False), cell_keys) if tracker.is_active else ():
        tracker.log_cell(cell.cell_key, cell.params, cell.metrics_by_iteration, cell.totals)
