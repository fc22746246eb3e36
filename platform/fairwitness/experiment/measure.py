"""The frame that every measure runs on: what a measure declares, and what is done with it.

A measure reads its inputs when it is made, before any model is loaded. It declares its studies, the stages of its work
and how rows count. The frame opens the run, resumes, asks the workers, stores rows as they come, tracks and reports.
docs/guides/extending.md makes one from nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from fairwitness.config import Config
from fairwitness.experiment.config import FollowConfig, RunConfig
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, JobRun, Report, Studied, problem_keys
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import EngineSpec, Outcome, Pool
from fairwitness.records.code import code_revision
from fairwitness.records.config import TrackingConfig
from fairwitness.records.progress import Progress
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from fairwitness.records.tracker import Tracker
from fairwitness_schemas import Table

ConfigT = TypeVar("ConfigT", bound=Config)
ItemT = TypeVar("ItemT")
Row = dict[str, Any]


@dataclass(frozen=True)
class Supplies:
    """What a measure may be given besides its configuration.

    Attributes:
        loaders: Data sets that another package makes, by name.
        rules: Rules that write texts about such a data set, by name.
    """

    loaders: Mapping[str, Loader] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)


class Done(NamedTuple):
    """Items that are done: the rows of each, the first of which says what became of it, and what they weigh."""

    rows: Sequence[Sequence[Row]]
    weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[ItemT]):
    """A part of a measure's work: items of one kind, asked of one engine, whose rows go into one table.

    Attributes:
        label: What the items are, for the progress display.
        batches: The items that are not finished yet, in batches that go to a worker together.
        request: Makes what the engine is asked of a batch, when it is sent.
        rows: Makes the rows of each item of a batch from what came back: its answer or an error.
        weight: How much an item takes, where they take unequal time.
        on_batch: Called after the rows of a batch are stored.
        batches_at_once: Batches that are sent before rows are made of any, for rows whose making needs the same
            workers; None where it does not.
    """

    label: str
    table: str
    spec: EngineSpec
    batches: Sequence[Sequence[ItemT]]
    request: Callable[[Sequence[ItemT]], Any]
    rows: Callable[[Sequence[ItemT], Outcome], Sequence[Sequence[Row]]]
    weight: Callable[[ItemT], float] | None = None
    on_batch: Callable[[Sequence[ItemT]], None] | None = None
    batches_at_once: int | None = None

    def weight_of(self, items: Iterable[ItemT]) -> float:
        """What items weigh together; 0 where the stage does not weigh them."""
        return sum(map(self.weight, items)) if self.weight else 0.0

    def done(self, pool: Pool) -> Iterator[Done]:
        """Every batch once, in the order in which they finish."""
        for batch, outcome in outcomes(pool, self.spec, self.batches, self.request, at_once=self.batches_at_once):
            yield Done(self.rows(batch, outcome), self.weight_of(batch))
            if self.on_batch is not None:
                self.on_batch(batch)


def outcomes(
    pool: Pool,
    spec: EngineSpec,
    batches: Sequence[Sequence[ItemT]],
    request: Callable[[Sequence[ItemT]], Any],
    *,
    at_once: int | None = None,
) -> Iterator[tuple[Sequence[ItemT], Outcome]]:
    """Every batch with its outcome, in the order in which they finish.

    `request` makes what the engine is asked of a batch, when it is sent. `at_once` batches are sent before the first
    outcome is given, so that the pool is free for other work in between: a pool does one thing at a time. None sends
    them as workers become free.
    """
    size = at_once or max(1, len(batches))
    for start in range(0, len(batches), size):
        wave = batches[start : start + size]
        found: Iterable[Outcome] = pool.map(spec, map(request, wave))
        for outcome in list(found) if at_once else found:
            yield wave[outcome.index], outcome


@dataclass(frozen=True)
class CellLog:
    """A part of a run as MLflow shows it: what it is, means by iteration, and figures of the whole."""

    key: str
    params: Mapping[str, Any]
    metrics_by_iteration: Mapping[int, Mapping[str, float]]
    totals: Mapping[str, float]


class Session:
    """A measure at work on its run: what its stages need.

    Attributes:
        health: Self-checks and health figures, stored with the job's row.
        run_key: Key of the job's row in `runs`.
    """

    def __init__(self, job: JobRun, pool: PoolConfig, stack: ExitStack) -> None:
        """Prepares; workers are started when `pool` is first used."""
        self.store, self.dir, self.tracker, self.health = job.store, job.dir, job.tracker, job.health
        self.run_key = str(job.row["key"])
        self._pool, self._stack = pool, stack
        self._pool_opened: Pool | None = None

    @property
    def pool(self) -> Pool:
        """The workers, started at the first use."""
        if self._pool_opened is None:
            self._pool_opened = self._stack.enter_context(make_pool(self._pool))
        return self._pool_opened

    @property
    def num_models_loaded(self) -> int:
        """How many engines were built."""
        return 0 if self._pool_opened is None else self._pool_opened.num_builds

    def add(self, table: str, rows: Iterable[Row]) -> None:
        """Stores the rows whose key is not finished in the store."""
        known = self.store.finished_keys(table)
        self.store.append(table, [row for row in rows if row["key"] not in known])

    def run(self, stage: Stage[Any]) -> None:
        """Does what is left of a stage, storing rows as they come.

        Raises:
            ModelError: The engine cannot be built.
            StoreError: Rows cannot be written.
        """
        if stage.batches:
            number = sum(map(len, stage.batches))
            weight = sum(map(stage.weight_of, stage.batches)) if stage.weight else None
            self.collect(stage.label, stage.table, number, stage.done(self.pool), weight=weight)

    def collect(
        self, label: str, table: str, number: int, done: Iterable[Done], *, weight: float | None = None
    ) -> None:
        """Stores rows as they come, from wherever they do, and shows progress.

        `number` is how many items come; `weight` what all weigh together, None where they take equal time.
        """
        with Progress(number, label, weight=weight) as progress:
            for rows, part in done:
                self.store.append(table, [row for one in rows for row in one])
                progress.count((_status(one[0]) for one in rows), weight=part)
        self.store.flush()

    def log(self, cells: Iterable[CellLog]) -> None:
        """Logs cells to MLflow."""
        log_cells(self.tracker, cells)


def log_cells(tracker: Tracker, cells: Iterable[CellLog]) -> None:
    """Logs cells; they are not computed where nothing is logged."""
    if tracker.is_active:
        for cell in cells:
            tracker.log_cell(cell.key, cell.params, cell.metrics_by_iteration, cell.totals)


class Measure(ABC, Generic[ConfigT]):
    """What a job measures. Making one reads data and looks at models; nothing is loaded or stored.

    Attributes:
        job: Name of the job in the table `runs`.
        code: Modules whose code, with all that they import, decides the results.
        tables: Tables of its own, besides those of `fairwitness_schemas`.
        studies: What it is about: their models, data sets and scopes are recorded with the job.
        cell_keys: Keys of the parts that its rows belong to.
    """

    job: ClassVar[str]
    code: ClassVar[tuple[str, ...]]
    tables: ClassVar[tuple[Table, ...]] = ()

    def __init__(self, config: ConfigT) -> None:
        """Takes a configuration; a measure reads its inputs here.

        Raises:
            FairwitnessError: Something cannot be used; the message says what and what to do.
        """
        self.config = config
        self.studies: Sequence[Studied] = ()
        self.cell_keys: Sequence[str] = ()

    @cached_property
    def run(self) -> RunDirectory:
        """The run directory: of its own name, or the one that it follows on.

        Raises:
            StoreError: There is no run to follow on.
        """
        if isinstance(self.config, FollowConfig):
            return RunDirectory.at(self.config.run)
        assert isinstance(self.config, RunConfig)
        return RunDirectory(self.config.output.dir, self.config.name)

    @property
    def pool(self) -> PoolConfig:
        """The workers."""
        assert isinstance(self.config, RunConfig)
        return self.config.pool

    @property
    def tracking(self) -> TrackingConfig:
        """Where MLflow is."""
        assert isinstance(self.config, RunConfig)
        return self.config.tracking

    @cached_property
    def row_keys(self) -> dict[str, list[str]]:
        """Keys of its cells, scopes and problems, as in its row of `runs`; see `of_run`."""
        return {
            "cell_keys": list(self.cell_keys),
            "scope_keys": [study.scope_key for study in self.studies],
            "problem_keys": problem_keys(self.studies),
        }

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the job's row that do not follow from its studies."""
        return {}

    @classmethod
    def work(cls, config: Mapping[str, Any]) -> Any:
        """What names the piece of work that a configuration is of: a job goes on with an earlier one of the same name.

        Args:
            config: A configuration of the job on this run, as plain values.
        """
        del config
        return None

    @abstractmethod
    def counts(self, store: Store) -> Counter[str]:
        """Number of items by status: ok, skipped, failed; and of refused records."""

    def stages(self, session: Session) -> Iterator[Stage[Any]]:
        """The stages of the work, each made when the one before is done: it may look at what was stored.

        What needs no engine is stored on the way, with `session.add`.
        """
        raise NotImplementedError

    def measure(self, session: Session) -> None:
        """Measures everything that is not in the store yet."""
        for stage in self.stages(session):
            session.run(stage)

    @classmethod
    def cells(cls, store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[CellLog]:
        """What MLflow shows of the job, from the store: a live job and `fairwitness track` log the same.

        `row` is the job's in `runs`; `keys` are the cells wanted, None for all of the job.
        """
        del store, row, keys
        yield from ()

    def dry_run(self) -> Iterator[str]:
        """Lines that say what would be run, with time and memory; nothing is stored."""
        yield "this job has no dry run"


Reporter = Callable[[Any], Report]
"""Makes the report of a measure that is done."""


def run_measure(measure: Measure[Any], report: Reporter) -> JobResult:
    """Runs a measure, or what is left of it, and reports.

    `report` is called with the measure at the end; its files become artifacts.

    Raises:
        FairwitnessError: Something makes the run impossible; the message says what.
        KeyboardInterrupt: The user stopped it; what is done is stored, and the same call goes on.
    """
    run, work = measure.run, measure.work(measure.config.model_dump(mode="json"))
    with run.opened(measure.tables) as store:
        job = JobRun(
            measure.job, measure.config, run, store, measure.tracking,
            count=lambda: measure.counts(store),
            studies=measure.studies,
            is_same=lambda earlier: measure.work(earlier) == work,
            is_followup=isinstance(measure.config, FollowConfig),
            code=code_revision(*measure.code),
            cell_keys=list(measure.cell_keys),
            **measure.columns,
        )  # fmt: skip
        with job.started(), ExitStack() as stack:
            session = Session(job, measure.pool, stack)
            try:
                measure.measure(session)
            finally:
                job.num_models_loaded = session.num_models_loaded
            store.flush()
        return job.finish(lambda _path: report(measure))


def _status(row: Row) -> str:
    """A truncated item was measured."""
    return "ok" if row["status"] == "truncated" else str(row["status"])
