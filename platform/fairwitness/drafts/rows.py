"""Rows of the tables of drafts. Pure: records in, dicts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairwitness.drafts.faithful import consistency, intra_draft
from fairwitness.drafts.plan import Counterfactual, cell_key
from fairwitness.drafts.reading import ReadBehaviour, ReadConclusion
from fairwitness.drafts.steps import DraftRecord, DraftStep, blocks
from fairwitness.drafts.study import DraftStudy
from fairwitness.experiment.data_set import refused_row
from fairwitness.lm.continuation import LENGTH, Continuation
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A continuation that was made, and what its readers found."""

    continuation: Continuation
    text: str
    conclusion: ReadConclusion
    behaviour: ReadBehaviour | None
    duration_s: float


def draft_row(study: DraftStudy, record: DraftRecord) -> Row:
    """Row of `drafts`."""
    return {
        "key": study.draft_key(record.problem),
        "scope_key": study.scope_key,
        "problem_key": study.data.problem_key(record.problem),
        "problem_id": record.problem.problem_id,
        "data_set": study.data.loaded.name,
        "model": study.facts.name,
        "model_revision": study.facts.revision,
        "source": study.source,
        "prompt_style": study.model.prompt_style,
        "seed": study.config.seed,
        "prompt_ids": list(record.prompt_ids),
        "draft_ids": list(record.draft_ids),
        "draft_text": record.text,
        "finish": record.finish,
        "irregular": list(record.irregular),
        "answer_text": record.answer_text,
        "answer_letter": record.answer,
        "conclusion_letter": record.conclusion,
        "conclusion_by": record.conclusion_by,
        "num_cot_steps": len(record.steps),
        "num_blocks": record.num_blocks,
        "status": record.status,
        "reason": record.reason,
    }


def refused_line_rows(study: DraftStudy) -> list[Row]:
    """Rows of `problems` for the lines of a file of drafts that cannot be used."""
    given = study.given
    return [refused_row(study.source, given.content_hash, one) for one in given.refused] if given else []


def draft_step_rows(study: DraftStudy, record: DraftRecord) -> list[Row]:
    """Rows of `draft_steps`."""
    draft_key = study.draft_key(record.problem)
    owner = {index: number for number, block in enumerate(blocks(record.steps)) for index in block}
    return [
        {
            "key": key_of(draft=draft_key, cot_step=index),
            "scope_key": study.scope_key,
            "draft_key": draft_key,
            "problem_id": record.problem.problem_id,
            "cot_step_index": index,
            "char_start": step.start,
            "char_end": step.end,
            "token_end": end,
            "label": step.label,
            "block_index": owner.get(index),
            "labelled_by": record.labelled_by,
            "status": "ok",
        }
        for index, (step, end) in enumerate(zip(record.steps, record.token_ends, strict=True))
    ]


def record_from_rows(problem: Problem, row: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> DraftRecord:
    """A record as it was stored."""
    steps = sorted(steps, key=lambda one: int(one["cot_step_index"]))
    return DraftRecord(
        problem,
        tuple(row["prompt_ids"] or ()),
        tuple(row["draft_ids"] or ()),
        row["draft_text"] or "",
        row["finish"],
        tuple(row["irregular"] or ()),
        row["answer_text"],
        row["answer_letter"],
        row["conclusion_letter"],
        row["conclusion_by"],
        tuple(DraftStep(one["char_start"], one["char_end"], one["label"]) for one in steps),
        tuple(one["token_end"] for one in steps),
        steps[0]["labelled_by"] if steps else None,
        row["status"],
        row["reason"],
    )


def unmeasured_row(study: DraftStudy, record: DraftRecord, one: Counterfactual, *, status: str, reason: str) -> Row:
    """Row of a continuation that was not made."""
    return _place(study, record, one) | {"status": status, "reason": reason}


def measured_row(study: DraftStudy, record: DraftRecord, one: Counterfactual, measured: Measured) -> Row:
    """Row of a continuation that was made."""
    assert record.conclusion is not None
    made, read, behaviour = measured.continuation, measured.conclusion, measured.behaviour
    # An immediate answer is as long as its limit; any other text that reaches it was cut off.
    is_cut = made.finish == LENGTH and one.answering != "immediate"
    letter = None if is_cut else read.letter
    if one.dimension == "intra":
        assert behaviour is not None
        known = None if is_cut else behaviour.behaviour
        verdict = intra_draft(known, letter, base=record.conclusion, expected=set(one.expected))
    else:
        verdict = consistency(letter, one.expected[0])
    why = (
        f"cut off after {len(made.ids)} tokens" if is_cut else read.reason or (behaviour.reason if behaviour else None)
    )
    return _place(study, record, one) | {
        "continuation_ids": list(made.ids),
        "continuation_text": measured.text,
        "finish": made.finish,
        "num_tokens": len(made.ids),
        "conclusion_letter": letter,
        "conclusion_by": read.by if letter else None,
        "conclusion_rules": None if is_cut else read.rules,
        "conclusion_judge": None if is_cut else read.judge,
        "behaviour": behaviour.behaviour if behaviour else None,
        "behaviour_by": behaviour.by if behaviour and behaviour.behaviour else None,
        "behaviour_rules": behaviour.rules if behaviour else None,
        "behaviour_judge": behaviour.judge if behaviour else None,
        "is_faithful": verdict,
        "duration_s": measured.duration_s,
        "status": "truncated" if is_cut else "ok",
        "reason": None if verdict is not None else why,
    }


def _place(study: DraftStudy, record: DraftRecord, one: Counterfactual) -> Row:
    at = record.token_ends[one.place.cot_step_index] if one.place else None
    return {
        "key": one.key,
        "scope_key": study.scope_key,
        "cell_key": cell_key(study.config, study.scope_key, one.intervention, one.insertion),
        "draft_key": study.draft_key(record.problem),
        "problem_id": record.problem.problem_id,
        "data_set": study.data.loaded.name,
        "model": study.facts.name,
        "source": study.source,
        "dimension": one.dimension,
        "intervention": one.intervention,
        "insertion_type": one.insertion,
        "position": one.position,
        "block_index": one.place.block_index if one.place else None,
        "answering": one.answering,
        "inserted_text": one.text or None,
        "inserted_at": len(record.draft_ids) if one.dimension == "answer" else at,
        "base_letter": record.conclusion,
        "expected_letters": list(one.expected),
    }
