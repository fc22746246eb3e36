"""A whole FUR sweep: studies on one pool, one store, one MLflow parent run, one row in `runs`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fairwitness.experiment.data_set import Loader, refusal_lines
from fairwitness.experiment.job import JobResult, Reporter
from fairwitness.fleet.factory import make_pool
from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study_job import StudyJob
from fairwitness.fur.study_run import StudyRun
from fairwitness.records.run_dir import RunDirectory

JOB = "fur_sweep"

log = logging.getLogger(__name__)


def run_sweep(config: FurSweepConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> JobResult:
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
    for line in refusal_lines((study.data for study in studies), "the report names all"):
        log.warning("%s", line)
    run = RunDirectory(config.output.dir, config.name)
    with run.opened() as store:
        job = StudyJob(JOB, config, studies, run, store)
        with job.started():
            _measure(job, config)
        return job.finish(report)


def _measure(job: StudyJob, config: FurSweepConfig) -> None:
    with make_pool(config.pool) as pool:
        for study in job.studies:
            part = StudyRun(study, pool, job.store, on_cell=job.log_cell)
            try:
                part.run()
            finally:
                job.note_health(part)
        job.num_models_loaded = pool.num_builds
