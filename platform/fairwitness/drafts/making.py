"""Drafts before anything is changed: written by the model or taken from a file, cut into steps, concluded, answered.

The key of a draft covers this module and all that it imports, so it imports nothing of interventions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.engine import DraftItem, DraftRequest, MadeDraft, engine_spec
from fairwitness.drafts.reading import Labeller, Readers, Text
from fairwitness.drafts.steps import DraftRecord, DraftStep, blocks, decompose, step_token_ends
from fairwitness.drafts.study import DraftStudy
from fairwitness.experiment.measure import outcomes
from fairwitness.fleet.pool import Pool
from fairwitness.judges.config import LocalModelConfig
from fairwitness.lm.continuation import EOS, LENGTH, Settings
from fairwitness.lm.tokens import decode, encode_continuation
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of
from fairwitness_schemas.drafts import OWN

BATCHES_PER_WORKER = 4
GIVEN = "given"
NOT_GIVEN = "the file has no usable draft for this problem"
NO_CONCLUSION = "the draft states no conclusion"
EMPTY = "the draft is empty"
ALTERED = "altered"
"""The model's tokenizer cannot write the draft as it was given."""

Row = dict[str, Any]


def batches_at_once(config: DraftFaithfulnessConfig) -> int | None:
    """Batches that are sent before any is read: a judge that runs on the same workers is asked in between."""
    is_shared = isinstance(config.judge, LocalModelConfig)
    return BATCHES_PER_WORKER * config.pool.most_workers if is_shared else None


def make_drafts(
    study: DraftStudy, pool: Pool, readers: Readers, labeller: Labeller, problems: Sequence[Problem]
) -> Iterator[list[DraftRecord]]:
    """Drafts of problems, in batches as they come; every problem exactly once."""
    begun = [_checked(study, _begun(study, problem)) for problem in problems]
    if unusable := [record for record in begun if record.status != "ok"]:
        yield unusable
    ready = [record for record in begun if record.status == "ok"]
    size = study.config.engine.drafts_per_item
    batches = [ready[start : start + size] for start in range(0, len(ready), size)]
    spec, at_once = engine_spec(study.model, study.config.engine), batches_at_once(study.config)
    for batch, outcome in outcomes(pool, spec, batches, lambda batch: _item(study, batch), at_once=at_once):
        if outcome.error is not None:
            yield [replace(record, status="failed", reason=outcome.error) for record in batch]
            continue
        made: Sequence[MadeDraft] = outcome.value
        records = [_with_draft(study, record, one) for record, one in zip(batch, made, strict=True)]
        yield _answered(readers, _cut(study, readers, labeller, records))


def given_drafts(study: DraftStudy) -> list[DraftRecord]:
    """The drafts of a file, cut and concluded by rules alone, without the answers after them."""
    config = study.config.model_copy(update={"conclusion_order": ("rules",), "behaviour_by": "rules"})
    records = [_checked(study, _begun(study, problem)) for problem in study.data.selection.measured]
    return _cut(study, Readers(config, None), Labeller(None), records)


def row_seed(study: DraftStudy, *item: str) -> int:
    """Seed of one row's own generator."""
    return int(key_of(seed=study.config.seed, item=list(item)), 16) % 2**63


def _begun(study: DraftStudy, problem: Problem) -> DraftRecord:
    """The draft's prompt, and the draft where it is given."""
    record = DraftRecord(problem, tuple(study.style.draft_prompt(problem)))
    if study.source == OWN:
        return record
    assert study.given is not None
    draft = study.given.drafts.get(problem.problem_id)
    if draft is None:
        fault = study.given.faults.get(problem.problem_id)
        return replace(record, status="skipped", reason=f"{NOT_GIVEN}: {fault}" if fault else NOT_GIVEN)
    # The ids of a text from outside are made here, once; everything after slices them.
    space = "" if study.style.tags else " "
    ids = tuple(encode_continuation(study.style.tokenizer, space + draft.text))
    text = decode(study.style.tokenizer, ids)
    irregular: list[str] = list(draft.irregular)
    if text.strip() != draft.text.strip():
        irregular.append(ALTERED)
    return replace(record, draft_ids=ids, text=text, finish=GIVEN, irregular=tuple(irregular))


def _item(study: DraftStudy, batch: Sequence[DraftRecord]) -> DraftItem:
    config = study.config
    requests = tuple(
        DraftRequest(
            record.prompt_ids,
            record.draft_ids if record.finish == GIVEN else None,
            row_seed(study, record.problem.problem_id, "draft"),
            row_seed(study, record.problem.problem_id, "answer"),
        )
        for record in batch
    )
    writing = Settings(config.limits.draft, study.style.stops, config.sampling, config.engine.max_cache_tokens)
    return DraftItem(requests, tuple(study.style.closing(immediate=False)), writing, answer_settings(study))


def _with_draft(study: DraftStudy, record: DraftRecord, made: MadeDraft) -> DraftRecord:
    tokenizer = study.style.tokenizer
    if made.draft is not None:
        ids = made.draft.ids
        record = replace(record, draft_ids=ids, text=decode(tokenizer, ids), finish=made.draft.finish)
        if made.draft.error is not None:
            return replace(record, status="skipped", reason=made.draft.error)
        record = _checked(study, record)
    if record.status != "ok" or made.answer is None:
        return record
    if made.answer.error is not None:
        return replace(record, reason=f"no answer after the untouched draft: {made.answer.error}")
    cut = f"the answer after the untouched draft was cut off after {len(made.answer.ids)} tokens"
    reason = cut if made.answer.finish == LENGTH else None
    return replace(record, answer_text=decode(tokenizer, made.answer.ids), reason=reason)


def _checked(study: DraftStudy, record: DraftRecord) -> DraftRecord:
    """A draft, the one given or the one written, with what is unusual about it; unusable ones are skipped."""
    if record.status != "ok" or record.finish is None:
        return record
    irregular = list(record.irregular)
    if study.style.tags is not None and record.finish in (EOS, LENGTH):
        irregular.append("unclosed")
    if study.style.tags is not None and study.style.tags.open in record.text:
        irregular.append("doubled")
    if not record.text.strip():
        irregular = [*irregular, "empty"]
        record = replace(record, status="skipped", reason=EMPTY)
    length, context = len(record.prompt_ids) + len(record.draft_ids), study.facts.context_length
    if record.status == "ok" and length >= context:
        reason = f"prompt and draft have {length} tokens, the model's context holds {context}"
        record = replace(record, status="skipped", reason=reason)
    return replace(record, irregular=tuple(dict.fromkeys(irregular)))


def _cut(study: DraftStudy, readers: Readers, labeller: Labeller, records: list[DraftRecord]) -> list[DraftRecord]:
    """Steps and conclusions of the records that are in order."""
    good = [i for i, record in enumerate(records) if record.status == "ok"]
    texts = [Text(records[i].problem, records[i].text) for i in good]
    labelled = labeller.label([(text.problem, decompose(text.text), text.text) for text in texts])
    for i, read, found in zip(good, readers.conclusions(texts), labelled, strict=True):
        record = records[i]
        ends = step_token_ends(lambda ids: decode(study.style.tokenizer, ids), record.draft_ids, found.steps)
        record = replace(record, steps=found.steps, token_ends=ends, labelled_by=found.by)
        record = replace(record, conclusion=read.letter, conclusion_by=read.by)
        if read.letter is None:
            cut = "; it was cut off at its limit" if record.finish == LENGTH else ""
            record = replace(record, status="skipped", reason=f"{NO_CONCLUSION}{cut}")
        if failure := found.reason or (read.reason if read.is_failed else None):
            record = replace(record, status="failed", reason=failure)
        records[i] = record
    return records


def _answered(readers: Readers, records: list[DraftRecord]) -> list[DraftRecord]:
    """The letters that the answers after the untouched drafts state; one that was cut off states none."""
    good = [i for i, r in enumerate(records) if r.status == "ok" and r.answer_text is not None and r.reason is None]
    texts = [Text(records[i].problem, records[i].answer_text or "") for i in good]
    for i, read in zip(good, readers.conclusions(texts), strict=True):
        records[i] = replace(records[i], answer=read.letter)
        if read.is_failed:
            records[i] = replace(records[i], status="failed", reason=read.reason)
    return records


def answer_settings(study: DraftStudy) -> Settings:
    """How answers after a draft are generated."""
    config = study.config
    return Settings(config.limits.answer, {}, config.sampling, config.engine.max_cache_tokens)


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
