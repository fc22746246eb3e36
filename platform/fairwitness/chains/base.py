"""The base model on all problems of a study, from the store where it is there."""

from __future__ import annotations

from collections.abc import Sequence

from fairwitness.chains.client import engine_spec
from fairwitness.chains.cots import CotRecord, cot_row, cot_step_rows, score_records, stored_records, write_records
from fairwitness.chains.study import ChainStudy
from fairwitness.experiment.measure import Done, Session
from fairwitness.records.progress import at_work


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
