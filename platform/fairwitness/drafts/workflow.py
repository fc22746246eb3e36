"""A whole measurement of drafts: studies on one pool, one store, one MLflow run, one row in `runs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import pyarrow.compute as pc

from fairwitness.analysis.drafts import read_continuations
from fairwitness.drafts.cells import log_draft_cells
from fairwitness.drafts.config import JOB, DraftFaithfulnessConfig
from fairwitness.drafts.plan import cell_keys
from fairwitness.drafts.reading import Readers
from fairwitness.drafts.steps import Labeller
from fairwitness.drafts.study import DraftStudy, prepare_draft_studies
from fairwitness.drafts.study_run import DraftStudyRun
from fairwitness.drafts.writing import Writer
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, JobRun, Reporter
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.judges.config import JudgeConfig, RulesConfig
from fairwitness.judges.factory import check_usable, make_chat_model
from fairwitness.judges.protocol import ChatModel
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store


def run_drafts(config: DraftFaithfulnessConfig, *, loaders: Mapping[str, Loader], report: Reporter) -> JobResult:
    """Measures drafts, or what is left of them, and reports.

    Args:
        config: What to measure.
        loaders: Further data sets by name.
        report: Called at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the run impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    check_judges(config)
    studies = prepare_draft_studies(config, loaders)
    run = RunDirectory(config.output.dir, config.name)
    with run.opened() as store:
        count = partial(_counts, store, studies)
        keys = [key for study in studies for key in cell_keys(config, study.scope_key)]
        job = JobRun(JOB, config, run, store, config.tracking, count=count, studies=studies, cell_keys=keys)
        files = [f"{s.source}@{s.given.content_hash}" for s in studies if s.given]
        job.row["data_sets"] = list(dict.fromkeys([*job.row["data_sets"], *files]))
        with job.started(), make_pool(config.pool) as pool:
            _measure(config, job, studies, pool)
            job.num_models_loaded = pool.num_builds
        return job.finish(report)


def check_judges(config: DraftFaithfulnessConfig) -> None:
    """Refuses a judge or writer that cannot be asked here and now; asks nothing.

    Raises:
        ConfigError, ModelError: See `check_usable`.
    """
    for judge in (config.judge, config.writer):
        if not isinstance(judge, RulesConfig):
            check_usable(judge)


def _measure(config: DraftFaithfulnessConfig, job: JobRun, studies: Sequence[DraftStudy], pool: Pool) -> None:
    with ExitStack() as stack:
        judge = stack.enter_context(_model(config.judge, job.dir, pool))
        writer = stack.enter_context(_model(config.writer, job.dir, pool))
        readers = Readers(config, judge)
        labeller = Labeller(judge if config.decomposer == "judge" else None)
        for study in studies:
            DraftStudyRun(study, pool, job.store, readers, labeller, Writer(config, writer)).run()
            log_draft_cells(job.tracker, job.store, cell_keys(config, study.scope_key), seed=config.seed)


@contextmanager
def _model(config: JudgeConfig, run: RunDirectory, pool: Pool) -> Iterator[ChatModel | None]:
    if isinstance(config, RulesConfig):
        yield None
        return
    with make_chat_model(config, cache_dir=run.path / "replies", pool=pool) as model:
        yield model


def _counts(store: Store, studies: Sequence[DraftStudy]) -> Counter[str]:
    """Continuations by status (a truncated one was measured), and drafts that gave none."""
    where = pc.field("scope_key").isin([study.scope_key for study in studies])
    counts: Counter[str] = Counter()
    keys = [key for study in studies for key in cell_keys(study.config, study.scope_key)]
    for status in read_continuations(store, keys, with_texts=False)["status"]:
        counts["ok" if status == "truncated" else status] += 1
    for row in store.read("drafts", ["status"], where & (pc.field("status") != "ok")).to_pylist():
        counts[row["status"]] += 1
    data = {study.data.loaded.name: len(study.data.loaded.refused) for study in studies}
    files = {study.source: len(study.refused) for study in studies}
    counts["refused"] = sum(data.values()) + sum(files.values())
    return counts
