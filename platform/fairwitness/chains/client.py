"""The driver's side of an engine: single questions of a study, and the base model on all its problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairwitness.chains.cots import (
    CotRecord,
    cot_row,
    cot_step_rows,
    held_out_answers,
    score_records,
    stored_records,
    write_records,
)
from fairwitness.chains.items import HeldOut
from fairwitness.chains.study import ChainStudy
from fairwitness.errors import DataError, FairwitnessError
from fairwitness.experiment.measure import Done, Session
from fairwitness.fleet.pool import Pool
from fairwitness.lm.engine import ModelSpec, Request
from fairwitness.records.progress import at_work


class EngineClient:
    """Asks a study's engine single questions through a pool."""

    def __init__(self, study: ChainStudy, pool: Pool) -> None:
        self.study, self.pool = study, pool
        self.spec = engine_spec(study)

    def held_out(self) -> tuple[HeldOut, ...]:
        """The held-out questions with the base model's answers.

        Raises:
            DataError: None fits into the context.
            ModelError: One that fits could not be answered.
        """
        with at_work(f"{self.study.label}: held-out answers"):
            found = held_out_answers(self.study, self.pool, self.spec)
        if not found:
            raise DataError(f"{self.study.label}: no held-out question fits into the model's context")
        return found

    def ask(self, request: Request, what: str) -> Any:
        """Sends one request and returns its answer.

        `what` is what it asks for, in words for people who wait.

        Raises:
            FairwitnessError: The engine could not answer.
        """
        with at_work(f"{self.study.label}: {what}"):
            (outcome,) = list(self.pool.map(self.spec, [request]))
        if outcome.error is not None:
            raise FairwitnessError(f"{self.study.label}: {outcome.error}")
        return outcome.value


def engine_spec(study: ChainStudy) -> ModelSpec:
    """The engine of a study's model. Actors that share one machine's memory share `memory_share` too."""
    config = study.config
    actors = config.pool.max_actors if study.model.device == "cpu" and config.pool.kind == "ray" else 1
    share = config.engine.memory_share / actors
    return ModelSpec(study.model, config.engine.model_copy(update={"memory_share": share}))


def base_records(study: ChainStudy, session: Session) -> list[CotRecord]:
    """Direct answer, CoT, answer given it, and steps with their probabilities, of every measured problem.

    What the store lacks is made and stored.

    Raises:
        ModelError: The model cannot be loaded.
        StoreError: Rows cannot be written.
    """
    stored = stored_records(study, session.store)
    missing = [p for p in study.data.selection.measured if p.problem_id not in stored]
    spec = engine_spec(study)

    def written(batch: Sequence[CotRecord]) -> Done:
        stored.update({record.problem.problem_id: record for record in batch})
        return Done([[cot_row(study, record)] for record in batch])

    if missing:
        batches = write_records(study, session.pool, spec, missing)
        session.collect(f"{study.label}: CoTs", "cots", len(missing), map(written, batches))
    # Steps are stored with their probabilities; a job that ends in between has its CoTs, and scores them next time.
    good = [record for record in stored.values() if record.status == "ok"]
    unscored = [record for record in good if not record.is_scored]
    _store_steps(study, session, [record for record in good if record.is_scored])
    if unscored:
        with at_work(f"{study.label}: probabilities of the cot_steps"):
            for batch in score_records(session.pool, spec, unscored):
                stored.update({record.problem.problem_id: record for record in batch})
                _store_steps(study, session, [record for record in batch if record.status == "ok"])
    session.store.flush()
    return list(stored.values())


def _store_steps(study: ChainStudy, session: Session, records: Sequence[CotRecord]) -> None:
    session.add("cot_steps", [row for record in records for row in cot_step_rows(study, record)])
