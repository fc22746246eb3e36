"""Rows of `baselines`. Pure: what was planned and what came back in, dicts out."""

from __future__ import annotations

from string import ascii_uppercase

from fairwitness.fur.baselines.altered import Altered, NotAltered
from fairwitness.fur.baselines.plan import Baseline, Work
from fairwitness.fur.cots import CotRecord
from fairwitness.fur.items import CotOutcome, ShapOutcome
from fairwitness.fur.rows import Row
from fairwitness.fur.study import Study
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.lm.tokens import decode
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

NO_COT, DISAGREEING = "no CoT", "disagreeing"
"""Places of the one row that stands for a whole problem."""


def row_key(study: Study, baseline: Baseline, problem: Problem, place: int | str | None) -> str:
    """Key of one measurement: of a step by its index, of the CoT as a whole (None), or of one of the places above."""
    return key_of(baseline=baseline.key, cot=study.cot_key(problem), place=place)


def whole_problem_row(
    study: Study, baseline: Baseline, record: CotRecord, place: str, *, status: str, reason: str
) -> Row:
    """The row of a problem that is not measured at all."""
    row = _common(study, baseline, record, None, place)
    return {**row, "status": status, "reason": reason}


def not_altered_row(
    study: Study, baseline: Baseline, record: CotRecord, one: NotAltered, place: int | str | None
) -> Row:
    """The row of a place where there is nothing to answer after."""
    row = _common(study, baseline, record, one.cot_step_index, place)
    return {
        **row,
        "source": one.source,
        "changed_text": one.changed_text,
        "status": one.status,
        "reason": one.reason,
    }


def failed_row(study: Study, work: Work, reason: str) -> Row:
    """The row of a measurement that no worker could make."""
    return {**_work_columns(study, work), "status": "failed", "reason": reason}


def measured_row(study: Study, work: Work, outcome: LetterAnswer | CotOutcome | ShapOutcome) -> Row:
    """The row of a measurement that came back; one with an error is `failed`."""
    if isinstance(outcome, LetterAnswer):
        return _answer_row(study, work, outcome, ())
    if outcome.error is not None:
        return failed_row(study, work, outcome.error)
    if isinstance(outcome, CotOutcome):
        assert outcome.answer is not None
        return _answer_row(study, work, outcome.answer, outcome.ids)
    return {
        **_work_columns(study, work),
        "score": outcome.score,
        "answer_attribution": _known(outcome.answer),
        "cot_attribution": _known(outcome.cot),
        "num_evaluations": outcome.num_evaluations,
        "status": "ok",
        "reason": outcome.reason,
    }


def _answer_row(study: Study, work: Work, answer: LetterAnswer, continued: tuple[int, ...]) -> Row:
    assert work.altered is not None
    assert work.record.given_cot is not None
    return {
        **_work_columns(study, work),
        "cot_text": decode(study.encoder.tokenizer, [*work.altered.ids, *continued]),
        "predicted_letter": ascii_uppercase[answer.index],
        "probs": list(answer.probs),
        "letter_mass": answer.mass,
        "flipped": answer.index != work.record.given_cot.index,
        "status": "ok",
    }


def _work_columns(study: Study, work: Work) -> Row:
    altered = work.altered or Altered(None, ())
    row = _common(study, work.baseline, work.record, altered.cot_step_index, altered.cot_step_index)
    return {**row, "source": altered.source, "changed_text": altered.changed_text}


def _common(study: Study, baseline: Baseline, record: CotRecord, index: int | None, place: int | str | None) -> Row:
    given = record.given_cot
    return {
        "key": row_key(study, baseline, record.problem, place),
        "baseline": baseline.name,
        "baseline_key": baseline.key,
        "scope_key": study.scope_key,
        "cot_key": study.cot_key(record.problem),
        "model": study.facts.name,
        "data_set": study.data.loaded.name,
        "problem_id": record.problem.problem_id,
        "problem_key": study.data.problem_key(record.problem),
        "cot_step_index": index,
        "base_letter": None if given is None else ascii_uppercase[given.index],
        "base_probs": None if given is None else list(given.probs),
    }


def _known(values: tuple[float, ...]) -> list[float] | None:
    # NaN stands for an attribution that is undefined; in the table that is null.
    return None if any(value != value for value in values) else list(values)
