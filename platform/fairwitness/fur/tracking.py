"""A FUR run in MLflow, from what its store holds: a live job and `fairwitness track` log the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairwitness.errors import StoreError
from fairwitness.fur.cells import summarise_cells
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.tracker import Tracker, TrackingConfig


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
    run = RunDirectory.at(run_path)
    if run.is_locked():
        raise StoreError(f"{run.path}: a job is writing this run and tracks it itself; wait for it to end")
    store = run.store(create=False)
    rows = run_rows(store)
    if not rows:
        raise StoreError(f"{run.path}: no run is recorded here; start the job again")
    tracker = Tracker(config, run, strict=True)
    tracker.start(rows[-1], rows[:-1])
    log_cells(tracker, run, rows[-1].get("cell_keys") or None)
    counts = {name: rows[-1][name] for name in ("num_ok", "num_skipped", "num_failed", "num_refused")}
    files = [run.config_path, run.report_path, run.csv_path] if artifacts is None else artifacts
    tracker.finish(rows[-1]["status"], files, {name: value for name, value in counts.items() if value is not None})
    return tracker.run_id


def log_cells(tracker: Tracker, run: RunDirectory, cell_keys: Sequence[str] | None = None) -> None:
    """Logs cells as the store has them now.

    Raises:
        StoreError: The store cannot be read.
    """
    for cell in summarise_cells(run.store(create=False), cell_keys) if tracker.is_active else ():
        tracker.log_cell(cell.cell_key, cell.params, cell.metrics_by_iteration, cell.totals)
