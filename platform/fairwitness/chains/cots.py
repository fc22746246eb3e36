"""The base model on a study's problems: direct answers, CoTs, answers given the CoTs, steps and their probabilities."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_uppercase
from typing import Any

import pyarrow.compute as pc

from fairwitness.chains.items import (
    AnswerItem,
    CotItem,
    CotOutcome,
    CotRequest,
    CotSteps,
    HeldOut,
    Ids,
    Question,
    StepScoreItem,
)
from fairwitness.chains.steps import CotStep, cot_steps
from fairwitness.chains.study import ChainStudy
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import EngineSpec, Pool
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.lm.tokens import decode
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of
from fairwitness.records.store import Store, one_of

log = logging.getLogger(__name__)

QUESTIONS_PER_ITEM = 64
COTS_PER_ITEM = 32


@dataclass(frozen=True)
class CotRecord:
    """What the base model does with one problem.

    Attributes:
        cot_ids: The CoT as generated; empty where there is none.
        finish: Why it ended; None where there is none.
        base_logprobs: Mean log-probability of each step (nats); None for a step without tokens, or not yet scored.
        status: `ok`, `skipped` or `failed`.
        reason: Why it is not `ok`.
    """

    problem: Problem
    prompt_ids: Ids
    cot_ids: Ids = ()
    text: str = ""
    finish: str | None = None
    direct: LetterAnswer | None = None
    given_cot: LetterAnswer | None = None
    steps: tuple[CotStep, ...] = ()
    base_logprobs: tuple[float | None, ...] = ()
    status: str = "ok"
    reason: str | None = None

    @property
    def agree(self) -> bool | None:
        """Whether direct answer and answer given the CoT are the same; None where one is missing."""
        if self.direct is None or self.given_cot is None:
            return None
        return self.direct.index == self.given_cot.index

    @property
    def is_scored(self) -> bool:
        """Whether every step that has tokens has its log-probability."""
        return all(
            value is not None or step.token_end <= step.token_start
            for step, value in zip(self.steps, self.base_logprobs, strict=True)
        )

    @property
    def eligible(self) -> list[CotStep]:
        """The steps that can be unlearned."""
        return [step for step in self.steps if step.ineligible is None] if self.status == "ok" else []


def question_of(study: ChainStudy, problem: Problem) -> Question:
    """The direct question as token ids."""
    return Question(
        tuple(study.encoder.direct(problem)), tuple(study.encoder.letter_ids(len(problem.choices), "direct"))
    )


def answer_questions(
    study: ChainStudy, pool: Pool, spec: EngineSpec, problems: Sequence[Problem]
) -> dict[str, LetterAnswer | str]:
    """Direct answers by problem id; for a problem without one, the reason."""
    found: dict[str, LetterAnswer | str] = {}
    fitting = []
    for problem in problems:
        question = question_of(study, problem)
        if len(question.ids) > study.facts.context_length:
            found[problem.problem_id] = too_long(study, len(question.ids))
        else:
            fitting.append((problem.problem_id, question))
    batches = list(_chunks(fitting, QUESTIONS_PER_ITEM))
    items = [AnswerItem(tuple(question for _, question in batch)) for batch in batches]
    for outcome in pool.map(spec, items):
        batch = batches[outcome.index]
        values = outcome.value if outcome.error is None else [outcome.error] * len(batch)
        found.update({name: value for (name, _), value in zip(batch, values, strict=True)})
    return found


def held_out_answers(study: ChainStudy, pool: Pool, spec: EngineSpec) -> tuple[HeldOut, ...]:
    """The held-out questions with the base model's answers, computed once; one that does not fit is left out.

    Specificity is a share of these answers, so a question is never left out for a failure that may pass.

    Raises:
        ModelError: A question that fits could not be answered.
    """
    held_out = study.data.selection.held_out
    answers = answer_questions(study, pool, spec, held_out)
    found = []
    for problem in held_out:
        answer, question = answers[problem.problem_id], question_of(study, problem)
        if isinstance(answer, LetterAnswer):
            found.append(HeldOut(question, answer.index))
        elif len(question.ids) <= study.facts.context_length:
            raise ModelError(
                f"{study.label}: held-out question {problem.problem_id} was not answered ({answer}); the same command "
                "tries again"
            )
    if len(found) < len(held_out):
        log.warning(
            "%s: %d of %d held-out questions do not fit into the model's context and are left out",
            study.label, len(held_out) - len(found), len(held_out),
        )  # fmt: skip
    return tuple(found)


def write_records(
    study: ChainStudy, pool: Pool, spec: EngineSpec, problems: Sequence[Problem]
) -> Iterator[list[CotRecord]]:
    """Direct answers and CoTs of problems, cut into steps, in batches as they come; every problem exactly once."""
    answers = answer_questions(study, pool, spec, problems)
    ready: list[CotRecord] = []
    unanswered: list[CotRecord] = []
    for problem in problems:
        record = CotRecord(problem, tuple(study.encoder.cot(problem)))
        answer = answers[problem.problem_id]
        if isinstance(answer, str):
            unanswered.append(replace(record, status="failed", reason=answer))
        else:
            ready.append(replace(record, direct=answer))
    if unanswered:
        yield unanswered
    ready.sort(key=lambda record: len(record.prompt_ids))
    batches = list(_chunks(ready, COTS_PER_ITEM))
    for outcome in pool.map(spec, (_cot_item(study, batch) for batch in batches)):
        batch = batches[outcome.index]
        if outcome.error is not None:
            yield [replace(record, status="failed", reason=outcome.error) for record in batch]
        else:
            yield [_with_cot(study, record, cot) for record, cot in zip(batch, outcome.value, strict=True)]


def score_records(pool: Pool, spec: EngineSpec, records: Sequence[CotRecord]) -> Iterator[list[CotRecord]]:
    """The same records with the log-probabilities of their steps, in batches as they come."""
    yield [record for record in records if not record.steps]
    batches = list(_chunks([record for record in records if record.steps], COTS_PER_ITEM))
    for outcome in pool.map(spec, (StepScoreItem(tuple(map(_scored, batch))) for batch in batches)):
        batch = batches[outcome.index]
        if outcome.error is not None:
            yield [replace(record, status="failed", reason=outcome.error) for record in batch]
        else:
            yield [_with_scores(record, scores) for record, scores in zip(batch, outcome.value, strict=True)]


def record_from_rows(
    study: ChainStudy, problem: Problem, row: Mapping[str, Any], logprobs: Mapping[int, float | None]
) -> CotRecord:
    """A record as it was stored; steps are cut again from the stored ids, which gives the same ones.

    `row` is the problem's of `cots`; `logprobs` are the stored ones of its steps.
    """
    cot_ids = tuple(row["cot_ids"] or ())
    steps = _steps(study, cot_ids)
    return CotRecord(
        problem,
        tuple(row["prompt_ids"]),
        cot_ids,
        row["cot_text"] or "",
        row["finish"],
        _stored_answer(row, "direct"),
        _stored_answer(row, "cot"),
        steps,
        tuple(logprobs.get(step.index) for step in steps),
        row["status"],
        row["reason"],
    )


def stored_records(study: ChainStudy, store: Store) -> dict[str, CotRecord]:
    """The study's records that are in the store and did not fail, by problem id.

    Raises:
        StoreError: The store cannot be read.
    """
    keys = {p.problem_id: study.cot_key(p) for p in study.data.selection.measured}
    good = pc.field("status") != "failed"
    rows = {row["problem_id"]: row for row in store.read("cots", where=one_of("key", keys.values()) & good).to_pylist()}
    columns = ["problem_id", "cot_step_index", "base_logprob"]
    steps = store.read("cot_steps", columns, one_of("cot_key", keys.values()) & good).to_pylist()
    logprobs: dict[str, dict[int, float | None]] = {}
    for step in steps:
        logprobs.setdefault(step["problem_id"], {})[step["cot_step_index"]] = step["base_logprob"]
    return {
        p.problem_id: record_from_rows(study, p, rows[p.problem_id], logprobs.get(p.problem_id, {}))
        for p in study.data.selection.measured
        if p.problem_id in rows
    }


def _stored_answer(row: Mapping[str, Any], name: str) -> LetterAnswer | None:
    letter = row[f"{name}_letter"]
    if letter is None:
        return None
    return LetterAnswer(tuple(row[f"{name}_probs"]), row[f"{name}_letter_mass"], ascii_uppercase.index(letter))


def _cot_item(study: ChainStudy, batch: Sequence[CotRecord]) -> CotItem:
    suffix = tuple(study.encoder.cot_answer_suffix_ids)
    requests = tuple(
        CotRequest(r.prompt_ids, suffix, tuple(study.encoder.letter_ids(len(r.problem.choices), "cot_answer")))
        for r in batch
    )
    return CotItem(requests, study.config.cot)


def _with_cot(study: ChainStudy, record: CotRecord, cot: CotOutcome) -> CotRecord:
    text = decode(study.encoder.tokenizer, cot.ids)
    record = replace(record, cot_ids=cot.ids, text=text, finish=cot.finish, given_cot=cot.answer)
    if cot.error is not None:
        status = "skipped" if cot.finish and not cot.ids else "failed"
        return replace(record, status=status, reason=cot.error)
    steps = _steps(study, cot.ids)
    return replace(record, steps=steps, base_logprobs=(None,) * len(steps))


def _steps(study: ChainStudy, cot_ids: Ids) -> tuple[CotStep, ...]:
    if not cot_ids:
        return ()
    return tuple(cot_steps(partial(decode, study.encoder.tokenizer), cot_ids, eligible=study.config.eligible))


def _scored(record: CotRecord) -> CotSteps:
    offset = len(record.prompt_ids)
    ranges = tuple((offset + s.token_start, offset + s.token_end) for s in record.steps if s.token_end > s.token_start)
    return CotSteps((*record.prompt_ids, *record.cot_ids), ranges)


def _with_scores(record: CotRecord, scores: Sequence[float]) -> CotRecord:
    values = iter(scores)
    return replace(
        record, base_logprobs=tuple(next(values) if s.token_end > s.token_start else None for s in record.steps)
    )


def too_long(study: ChainStudy, num_tokens: int) -> str:
    """Why a question of this many tokens is not asked."""
    return f"the question has {num_tokens} tokens, the model's context holds {study.facts.context_length}"


def _chunks(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    values = list(values)
    for start in range(0, len(values), size):
        yield values[start : start + size]


Row = dict[str, Any]


def cot_row(study: ChainStudy, record: CotRecord) -> Row:
    """Row of `cots` for one problem."""
    row: Row = {
        "key": study.cot_key(record.problem),
        **study.columns,
        "problem_key": study.data.problem_key(record.problem),
        "problem_id": record.problem.problem_id,
        "model_revision": study.facts.revision,
        "prompt_style": study.model.prompt_style,
        "seed": study.config.seed,
        "prompt_ids": list(record.prompt_ids),
        "cot_ids": list(record.cot_ids),
        "cot_text": record.text,
        "finish": record.finish,
        "agree": record.agree,
        "num_cot_steps": len(record.steps),
        "status": record.status,
        "reason": record.reason,
    }
    for name, answer in (("direct", record.direct), ("cot", record.given_cot)):
        if answer is not None:
            row |= {
                f"{name}_letter": ascii_uppercase[answer.index],
                f"{name}_probs": list(answer.probs),
                f"{name}_letter_mass": answer.mass,
            }
    return row


def cot_step_rows(study: ChainStudy, record: CotRecord) -> list[Row]:
    """Rows of `cot_steps` for one CoT."""
    cot_key = study.cot_key(record.problem)
    return [
        {
            "key": key_of(cot=cot_key, cot_step=step.index),
            "scope_key": study.scope_key,
            "data_set": study.data.loaded.name,
            "cot_key": cot_key,
            "problem_id": record.problem.problem_id,
            "cot_step_index": step.index,
            "char_start": step.char_start,
            "char_end": step.char_end,
            "token_start": step.token_start,
            "token_end": step.token_end,
            "text": step.text,
            "content_words": list(step.words),
            "content_positions": [p for word in step.word_positions for p in word],
            "eligible": step.ineligible is None,
            "base_logprob": record.base_logprobs[step.index],
            "status": "ok" if step.ineligible is None else "skipped",
            "reason": step.ineligible,
        }
        for step in record.steps
    ]
