"""`jobs/fur_sweep.py`: FUR over models, data sets and learning rates."""

from __future__ import annotations

from functools import partial

from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.sweep import run_sweep
from fairwitness.launch.common import LOADERS
from fairwitness.launch.job import Job, make_report

fur_sweep = Job(
    help="Measures which reasoning steps of a model are parametrically faithful.",
    config=FurSweepConfig,
    run=partial(run_sweep, loaders=LOADERS, report=make_report),
    counts="tasks: {ok} ok, {skipped} skipped, {failed} failed; refused records: {refused}",
    if_failed="some tasks failed; the report names them, and the same command tries them again",
    dry_run=partial(dry_run, loaders=LOADERS),
    dry_run_help="Say what would be run, with memory and time.",
)
"""Exit code 3: no rate is feasible for any model and data set."""
