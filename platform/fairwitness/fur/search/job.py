"""A whole search for learning rates: studies on one pool, a row in `trials` per rate, one MLflow parent run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwitness.config import fingerprint
from fairwitness.errors import DataError
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, Report
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.fleet.trials import Shown, run_trials
from fairwitness.fur.search.bench import Bench, TrialPlanner
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.outcome import SearchOutcome, outcome_of, trial_rows
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study import FurStudy
from fairwitness.fur.study_job import StudyJob
from fairwitness.fur.study_run import StudyRun
from fairwitness.records.run_dir import RunDirectory

log = logging.getLogger(__name__)

JOB = "lr_search"

SearchReporter = Callable[[Path, Sequence[SearchOutcome]], Report]
"""Reports on a run directory and on what was found, in the order of the studies."""


@dataclass(frozen=True)
class SearchResult(JobResult):
    """What became of a search.

    Attributes:
        outcomes: What was found, per study.
    """

    outcomes: tuple[SearchOutcome, ...]


def run_search(config: LrSearchConfig, *, loaders: Mapping[str, Loader], report: SearchReporter) -> SearchResult:
    """Runs a search, or what is left of it, and reports on it.

    Args:
        config: What to search.
        loaders: Further data sets by name, see `prepare_studies`.
        report: Called at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the search impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    studies = prepare_studies(config, loaders)
    _must_have_problems(config, studies)
    run = RunDirectory(config.output.dir, config.name)
    with run.opened() as store:
        job = StudyJob(JOB, config, studies, run, store)
        with job.started():
            outcomes = _search(job, config)
        return SearchResult(**vars(job.finish(lambda path: report(path, outcomes))), outcomes=outcomes)


def _must_have_problems(config: LrSearchConfig, studies: Sequence[FurStudy]) -> None:
    for study in studies:
        number = len(study.data.selection.measured)
        if number < config.min_problems:
            raise DataError(
                f"{study.data.loaded.name}: {number} problems are too few to choose a rate on, the paper takes 30; "
                f"raise its num_problems, or set min_problems to at most {number}"
            )


def _search(job: StudyJob, config: LrSearchConfig) -> tuple[SearchOutcome, ...]:
    outcomes = []
    with make_pool(config.pool) as pool:
        for study in job.studies:
            part = StudyRun(study, pool, job.store, on_cell=_ignore)
            try:
                outcome = _search_study(part, pool, job, config)
            finally:
                job.note_health(part)
            searcher = config.search_of(study.model).kind
            rows = [{**row, "searcher": searcher} for row in trial_rows(outcome, job.row["key"])]
            job.store.append("trials", rows)
            outcomes.append(outcome)
        job.num_models_loaded = pool.num_builds
    return tuple(outcomes)


def _search_study(part: StudyRun, pool: Pool, job: StudyJob, config: LrSearchConfig) -> SearchOutcome:
    bench = Bench(part, config, job.log_cell)
    search = config.search_of(part.study.model)
    planner = TrialPlanner(search.policy(config.min_specificity))
    if not bench.batches:
        log.warning("%s: no problem has a cot_step to unlearn; no rate can be chosen", part.study.label)
    done: list[Shown]
    if config.pool.kind == "local":
        done = run_trials(planner, bench.answer)
    else:
        from fairwitness.fleet.tune_trials import run_trials_on_tune

        folder = job.dir.path / "tune" / _slug(part.study, search)
        done = run_trials_on_tune(planner, bench.answer, folder=folder, max_concurrent=search.max_concurrent)
    return outcome_of(bench, done)


def _slug(study: FurStudy, search: Any) -> str:
    """Name of the folder of a study's search; another one for other settings, model, data or code."""
    cells = [study.cell_key(lr) for lr in study.rates]
    return fingerprint([search.model_dump(mode="json"), study.config.min_specificity, cells])


def _ignore(_cell_key: str) -> None:
    """Cells are logged when a trial is over."""
