"""A finished run in MLflow, from what its store holds; what its cells are, each kind of run says itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairwitness.errors import StoreError
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.tracker import Tracker, TrackingConfig

LogCells = Callable[[Tracker, RunDirectory, Mapping[str, Any]], None]
"""Logs the cells of a run, given the latest row of `runs`."""


def track_stored_run(
    run_path: Path | str, config: TrackingConfig, log_cells: LogCells, artifacts: Sequence[Path] | None = None
) -> str | None:
    """Logs a run from its store: everything that the job would have logged. Doing it twice changes nothing.

    Args:
        run_path: The run directory.
        config: Where to log.
        log_cells: Logs the cells.
        artifacts: Files to add; None for the resolved configuration, the report and its tables.

    Returns:
        The id of the parent run; None when tracking is not enabled.

    Raises:
        StoreError: There is no run, it cannot be read, or a job is writing it now.
        FairwitnessError: MLflow cannot be used.
    """
    run = RunDirectory.at(run_path)
    if run.is_locked():
        raise StoreError(f"{run.path}: a job is writing this run and tracks it itself; wait for it to end")
    rows = run_rows(run.store(create=False))
    if not rows:
        raise StoreError(f"{run.path}: no run is recorded here; start the job again")
    tracker = Tracker(config, run, strict=True)
    tracker.start(rows[-1], rows[:-1])
    log_cells(tracker, run, rows[-1])
    counts = {name: rows[-1][name] for name in ("num_ok", "num_skipped", "num_failed", "num_refused")}
    files = [run.config_path, run.report_path, run.csv_path] if artifacts is None else artifacts
    tracker.finish(rows[-1]["status"], files, {name: value for name, value in counts.items() if value is not None})
    return tracker.run_id
