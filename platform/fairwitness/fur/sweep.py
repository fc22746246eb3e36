"""A whole FUR sweep: studies on one pool, one store, one MLflow parent run, one row in `runs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairwitness.fleet.factory import make_pool
from fairwitness.fur.study import prepare_studies
from fairwitness.fur.study_job import StudyJob
from fairwitness.fur.study_run import StudyRun
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.records.data_set import Loader
from fairwitness.records.job import Report, Reporter
from fairwitness.records.run_dir import RunDirectory

JOB = "fur_sweep"


@dataclass(frozen=True)
class SweepResult:
    """What became of a sweep.

    Attributes:
        run: Its directory.
        exit_code: 0 done, 1 some items failed, 3 no rate is feasible for any model and data set.
        counts: Number of tasks by status, and of refused records.
        report: What was reported.
        tracking_uri: Where MLflow has it; None when tracking is off or failed.
        num_models_loaded: How many engines were built.
    """

    run: RunDirectory
    exit_code: int
    counts: Mapping[str, int]
    report: Report
    tracking_uri: str | None
    num_models_loaded: int


def run_sweep(config: FurSweepConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> SweepResult:
    """Runs a sweep, or what is left of it, and reports on it.

    Args:
        config: What to run.
        loaders: Further data sets by name, see `prepare_studies`.
        report: Called at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the run impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    studies = prepare_studies(config, loaders)
    run = RunDirectory(config.output.dir, config.name)
    with run.lock(), run.store() as store:
        job = StudyJob(JOB, config, studies, run, store)
        with job.started():
            num_models_loaded = _measure(job, config)
        code, reported = job.finish(report)
        return SweepResult(run, code, job.counts(), reported, job.tracking_uri, num_models_loaded)


def _measure(job: StudyJob, config: FurSweepConfig) -> int:
    with make_pool(config.pool) as pool:
        for study in job.studies:
            part = StudyRun(study, pool, job.store, on_cell=job.log_cell)
            try:
                part.run()
            finally:
                job.note_health(part)
        return pool.num_builds
