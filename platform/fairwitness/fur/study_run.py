"""Runs one study of unlearning: base measurements, self-checks, tasks in groups; every row is stored as it comes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from fairwitness.chains.client import base_records
from fairwitness.chains.cots import CotRecord, Row
from fairwitness.chains.items import HeldOut
from fairwitness.experiment.data_set import problem_rows
from fairwitness.experiment.measure import Session, Stage
from fairwitness.fleet.pool import Outcome
from fairwitness.fur.client import FurClient
from fairwitness.fur.rows import measured_rows, place_key, unmeasured_row
from fairwitness.fur.schedule import Planned, Schedule, Wanted, engine_group, make_schedule, pack_groups
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import TaskResult
from fairwitness.records.store import one_of

log = logging.getLogger(__name__)


class _SetUp(NamedTuple):
    """What an engine is asked once: held-out questions with the base model's answers, and how many tasks it takes."""

    held_out: tuple[HeldOut, ...]
    group_size: int


class FurStudyRun:
    """Owns one study's progress through base measurement, self-checks and unlearning."""

    def __init__(self, study: FurStudy, session: Session, *, on_cell: Callable[[str], None]) -> None:
        """Prepares; nothing is run yet.

        Args:
            study: What to measure.
            session: The measure at work.
            on_cell: Called with the key of each cell that is complete in the store.
        """
        self.study, self.session, self.store, self.on_cell = study, session, session.store, on_cell

    @cached_property
    def client(self) -> FurClient:
        """The study's engine; workers are started at the first use."""
        return FurClient(self.study, self.session.pool)

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
            self.session.run(self._stage(schedule, label))
        self.store.flush()
        return schedule.num_finished

    @cached_property
    def records(self) -> list[CotRecord]:
        """The base model on every measured problem; made at the first use, with the rows of the problems."""
        self.session.add("problems", problem_rows(self.study.data))
        return base_records(self.study, self.session)

    @cached_property
    def tasks(self) -> tuple[Planned, ...]:
        """Every task of the study at its first rate, finished or not: what all rates have in common."""
        everything = {record.problem.problem_id for record in self.records}
        wanted = {self.study.rates[0]: everything}
        return make_schedule(self.study, self.records, frozenset(), {}, wanted).planned

    def schedule(self, wanted: Wanted | None = None) -> Schedule:
        """All tasks of the study or of a part of it, those of earlier jobs set apart."""
        cells = [self.study.cell_key(lr) for lr in (self.study.rates if wanted is None else wanted)]
        tried = self.store.read("unlearning", ["place_key", "attempt", "status"], one_of("cell_key", cells))
        last = tried.group_by(["place_key", "status"]).aggregate([("attempt", "max")]).to_pylist()
        attempts = {row["place_key"]: row["attempt_max"] for row in last}
        schedule = make_schedule(self.study, self.records, self.store.finished_keys("unlearning"), attempts, wanted)
        measured = {row["place_key"] for row in last if row["status"] == "ok"}
        number = sum(self._place(item) in measured for item in schedule.planned)
        if number:
            log.info("%s: %d tasks are measured again: their retain sets are drawn anew", self.study.label, number)
        return schedule

    def _place(self, item: Planned) -> str:
        return place_key(self.study, item.lr, item.record.problem, item.cot_step_index)

    @cached_property
    def _set_up(self) -> _SetUp:
        held_out = self.client.held_out()
        try:
            self.client.check(self.tasks)
        finally:
            self.session.health |= {f"{self.study.label}: {name}": c.as_json for name, c in self.client.health.items()}
        return _SetUp(held_out, self.client.capacity(self.tasks, held_out).group_size)

    def _stage(self, schedule: Schedule, label: str) -> Stage[Planned]:
        held_out, size = self._set_up
        left = Counter(item.lr for item in schedule.planned)

        def count_down(group: Sequence[Planned]) -> None:
            left[group[0].lr] -= len(group)
            if not left[group[0].lr]:
                self.store.flush()
                self.on_cell(self.study.cell_key(group[0].lr))

        return Stage(
            label=f"{self.study.label}: {label}",
            table="unlearning",
            spec=self.client.spec,
            batches=pack_groups(schedule.planned, size, self.study.config.pool.most_workers),
            request=lambda group: engine_group(self.study, group, held_out),
            rows=lambda group, outcome: list(self._rows(group, outcome, held_out)),
            on_batch=count_down,
        )

    def _rows(self, group: Sequence[Planned], outcome: Outcome, held_out: Sequence[HeldOut]) -> Iterator[list[Row]]:
        results: Iterable[TaskResult | None] = outcome.value if outcome.error is None else [None] * len(group)
        for item, result in zip(group, results, strict=True):
            error = outcome.error if result is None else result.error
            if result is None or error is not None:
                yield [
                    unmeasured_row(
                        self.study, item.record, item.cot_step_index, item.lr,
                        status="failed", reason=str(error), attempt=item.attempt, key=item.task.task_key,
                    )
                ]  # fmt: skip
            else:
                yield measured_rows(
                    self.study, item.record, item.cot_step_index, item.lr, result, held_out,
                    attempt=item.attempt, worker=outcome.worker, duration_s=outcome.duration_s,
                )  # fmt: skip
