"""Runs one study on a pool and stores every row as it comes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow.compute as pc

from fairwitness.chains.cots import CotRecord, cot_row, cot_step_rows, score_records, stored_records, write_records
from fairwitness.chains.items import HeldOut
from fairwitness.experiment.data_set import problem_rows
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.fur.client import FurClient
from fairwitness.fur.rows import measured_rows, place_key, unmeasured_row
from fairwitness.fur.schedule import Planned, Schedule, Wanted, engine_group, make_schedule, pack_groups
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import TaskResult
from fairwitness.records.progress import Progress, at_work
from fairwitness.records.store import Store

log = logging.getLogger(__name__)


class _SetUp(NamedTuple):
    """What an engine is asked once: held-out questions with the base model's answers, and how many tasks it takes."""

    held_out: tuple[HeldOut, ...]
    group_size: int


class StudyRun:
    """Owns one study's progress through base measurement, self-checks and unlearning."""

    def __init__(self, study: FurStudy, pool: Pool, store: Store, *, on_cell: Callable[[str], None]) -> None:
        """Prepares; nothing is run yet.

        Args:
            study: What to measure.
            pool: Where.
            store: Where rows go.
            on_cell: Called with the key of each cell that is complete in the store.
        """
        self.study, self.pool, self.store, self.on_cell = study, pool, store, on_cell
        self.client = FurClient(study, pool)

    def run(self) -> None:
        """Measures everything that is not in the store yet.

        Raises:
            ModelError: The model cannot be loaded, or fails a self-check.
            DataError: No held-out question can be answered.
            StoreError: Rows cannot be written.
        """
        num_finished = self.measure()
        if num_finished:
            log.info("%s: %d tasks are finished already", self.study.label, num_finished)
        for lr in self.study.rates:
            self.on_cell(self.study.cell_key(lr))

    def measure(self, wanted: Wanted | None = None, label: str = "unlearning") -> int:
        """Measures a part of the study that is not in the store yet; may be called again for other parts.

        Base measurements, held-out answers, self-checks and the group size are made once.

        Args:
            wanted: The part; None for all of it.
            label: What it is, for the progress display.

        Returns:
            How many tasks of the part were finished before.

        Raises:
            FairwitnessError: See `run`.
        """
        schedule = self.schedule(wanted)
        self.store.append("unlearning", schedule.rows)
        if schedule.planned:
            self._unlearn(schedule, label)
        self.store.flush()
        return schedule.num_finished

    @cached_property
    def records(self) -> list[CotRecord]:
        """The base model on every measured problem; made at the first use, with the rows of the problems."""
        self.store.append("problems", new_rows(self.store, "problems", problem_rows(self.study.data)))
        return self.base_records()

    @cached_property
    def tasks(self) -> tuple[Planned, ...]:
        """Every task of the study at its first rate, finished or not: what all rates have in common."""
        everything = {record.problem.problem_id for record in self.records}
        wanted = {self.study.rates[0]: everything}
        return make_schedule(self.study, self.records, frozenset(), {}, wanted).planned

    def base_records(self) -> list[CotRecord]:
        """The base model on every measured problem, from the store where it is there."""
        stored = stored_records(self.study, self.store)
        missing = [p for p in self.study.data.selection.measured if p.problem_id not in stored]
        if missing:
            with Progress(len(missing), f"{self.study.label}: CoTs") as progress:
                for batch in write_records(self.study, self.pool, self.client.spec, missing):
                    stored.update({record.problem.problem_id: record for record in batch})
                    rows = [cot_row(self.study, record) for record in batch]
                    self.store.append("cots", new_rows(self.store, "cots", rows))
                    progress.count(record.status for record in batch)
        # Steps are stored with their probabilities; a job that ends in between has its CoTs, and scores them next time.
        unscored = [r for r in stored.values() if r.status == "ok" and not _is_scored(r)]
        self._store_steps([r for r in stored.values() if r.status == "ok" and _is_scored(r)])
        with at_work(f"{self.study.label}: probabilities of the cot_steps"):
            for batch in score_records(self.pool, self.client.spec, unscored):
                stored.update({record.problem.problem_id: record for record in batch})
                self._store_steps([record for record in batch if record.status == "ok"])
        self.store.flush()
        return list(stored.values())

    def schedule(self, wanted: Wanted | None = None) -> Schedule:
        """All tasks of the study or of a part of it, those of earlier jobs set apart."""
        cells = [self.study.cell_key(lr) for lr in (self.study.rates if wanted is None else wanted)]
        tried = self.store.read("unlearning", ["place_key", "attempt", "status"], pc.field("cell_key").isin(cells))
        last = tried.group_by(["place_key", "status"]).aggregate([("attempt", "max")]).to_pylist()
        attempts = {row["place_key"]: row["attempt_max"] for row in last}
        schedule = make_schedule(self.study, self.records, self.store.finished_keys("unlearning"), attempts, wanted)
        measured = {row["place_key"] for row in last if row["status"] == "ok"}
        self._announce_drawn_anew(sum(self._place(item) in measured for item in schedule.planned))
        return schedule

    def _place(self, item: Planned) -> str:
        return place_key(self.study, item.lr, item.record.problem, item.cot_step_index)

    def _announce_drawn_anew(self, number: int) -> None:
        if number:
            log.info(
                "%s: %d tasks are measured again: their retain sets draw on a CoT that failed before",
                self.study.label, number,
            )  # fmt: skip

    @cached_property
    def _set_up(self) -> _SetUp:
        held_out = self.client.held_out()
        self.client.check(self.tasks)
        return _SetUp(held_out, self.client.capacity(self.tasks, held_out).group_size)

    def _unlearn(self, schedule: Schedule, label: str) -> None:
        held_out, size = self._set_up
        groups = pack_groups(schedule.planned, size, self.study.config.pool.most_workers)
        left = Counter(item.lr for item in schedule.planned)
        items = (engine_group(self.study, group, held_out) for group in groups)
        with Progress(len(schedule.planned), f"{self.study.label}: {label}") as progress:
            for outcome in self.pool.map(self.client.spec, items):
                group = groups[outcome.index]
                progress.count(self._store_group(group, outcome, held_out))
                left[group[0].lr] -= len(group)
                if not left[group[0].lr]:
                    self.store.flush()
                    self.on_cell(self.study.cell_key(group[0].lr))

    def _store_group(self, group: Sequence[Planned], outcome: Outcome, held_out: Sequence[HeldOut]) -> list[str]:
        results: Iterable[TaskResult | None] = outcome.value if outcome.error is None else [None] * len(group)
        statuses = []
        for item, result in zip(group, results, strict=True):
            error = outcome.error if result is None else result.error
            if result is None or error is not None:
                rows = [
                    unmeasured_row(
                        self.study, item.record, item.cot_step_index, item.lr,
                        status="failed", reason=str(error), attempt=item.attempt, key=item.task.task_key,
                    )
                ]  # fmt: skip
            else:
                rows = measured_rows(
                    self.study, item.record, item.cot_step_index, item.lr, result, held_out,
                    attempt=item.attempt, worker=outcome.worker, duration_s=outcome.duration_s,
                )  # fmt: skip
            self.store.append("unlearning", rows)
            statuses.append(str(rows[0]["status"]))
        return statuses

    def _store_steps(self, records: Sequence[CotRecord]) -> None:
        rows = [row for record in records for row in cot_step_rows(self.study, record)]
        self.store.append("cot_steps", new_rows(self.store, "cot_steps", rows))


def new_rows(store: Store, table: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose key is not finished in the store."""
    known = store.finished_keys(table)
    return [row for row in rows if row["key"] not in known]


def _is_scored(record: CotRecord) -> bool:
    return all(
        value is not None or step.token_end <= step.token_start
        for step, value in zip(record.steps, record.base_logprobs, strict=True)
    )


def iterate_cells(studies: Sequence[FurStudy]) -> Iterator[str]:
    """Keys of all cells of all studies."""
    return (study.cell_key(lr) for study in studies for lr in study.rates)
