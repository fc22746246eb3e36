"""Drafts before anything is changed: written by the model or taken from a file, cut into steps, concluded, answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fairwitness.drafts.config import OWN
from fairwitness.drafts.decompose import decompose
from fairwitness.drafts.engine import ContinueItem, DraftSpec
from fairwitness.drafts.labelling import Labeller
from fairwitness.drafts.reading import Readers, Text
from fairwitness.drafts.records import DraftRecord, step_token_ends
from fairwitness.drafts.study import DraftStudy
from fairwitness.fleet.pool import Pool
from fairwitness.lm.continuation import EOS, LENGTH, Branch, Settings, Tree
from fairwitness.lm.tokens import decode, encode_continuation
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

GIVEN = "given"
NOT_GIVEN = "the file has no draft for this problem"
NO_CONCLUSION = "the draft states no conclusion"
EMPTY = "the draft is empty"


def make_drafts(
    study: DraftStudy, pool: Pool, readers: Readers, labeller: Labeller, problems: Sequence[Problem]
) -> Iterator[list[DraftRecord]]:
    """Drafts of problems, in batches as they come; every problem exactly once."""
    size = study.config.engine.drafts_per_item
    batches = [problems[start : start + size] for start in range(0, len(problems), size)]
    written = _own(study, pool, batches) if study.source == OWN else (_given(study, batch) for batch in batches)
    for records in written:
        cut = _cut(study, readers, labeller, [_checked(study, record) for record in records])
        yield _answered(study, pool, readers, cut)


def row_seed(study: DraftStudy, *item: str) -> int:
    """Seed of one row's own generator."""
    return int(key_of(seed=study.config.seed, item=list(item)), 16) % 2**63


def _own(study: DraftStudy, pool: Pool, batches: Sequence[Sequence[Problem]]) -> Iterator[list[DraftRecord]]:
    settings = Settings(
        study.config.limits.draft, study.style.stops, study.config.sampling, study.config.engine.max_cache_tokens
    )
    prompts = [[tuple(study.style.draft_prompt(problem)) for problem in batch] for batch in batches]
    items = (
        ContinueItem(
            tuple(
                Tree((), (Branch(0, prompt, row_seed(study, problem.problem_id, "draft")),))
                for problem, prompt in zip(batch, row, strict=True)
            ),
            settings,
        )
        for batch, row in zip(batches, prompts, strict=True)
    )
    for outcome in pool.map(spec_of(study), items):
        batch, row = batches[outcome.index], prompts[outcome.index]
        if outcome.error is not None:
            yield [
                DraftRecord(p, ids, status="failed", reason=outcome.error) for p, ids in zip(batch, row, strict=True)
            ]
            continue
        records = []
        for problem, ids, (made,) in zip(batch, row, outcome.value, strict=True):
            record = DraftRecord(problem, ids, made.ids, decode(study.style.tokenizer, made.ids), made.finish)
            records.append(record if made.error is None else replace(record, status="skipped", reason=made.error))
        yield records


def _given(study: DraftStudy, problems: Sequence[Problem]) -> list[DraftRecord]:
    records = []
    for problem in problems:
        prompt, draft = tuple(study.style.draft_prompt(problem)), study.given.get(problem.problem_id)
        if draft is None:
            records.append(DraftRecord(problem, prompt, status="skipped", reason=NOT_GIVEN))
            continue
        # The ids of a text from outside are made here, once; everything after slices them.
        space = "" if study.style.tags else " "
        ids = tuple(encode_continuation(study.style.tokenizer, space + draft.text))
        text = decode(study.style.tokenizer, ids)
        records.append(DraftRecord(problem, prompt, ids, text, GIVEN, draft.irregular))
    return records


def _checked(study: DraftStudy, record: DraftRecord) -> DraftRecord:
    if record.status != "ok":
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
        record = replace(
            record,
            steps=found.steps,
            token_ends=ends,
            labelled_by=found.by,
            conclusion=read.letter,
            conclusion_by=read.by,
        )
        if read.letter is None:
            cut = "; it was cut off at its limit" if record.finish == LENGTH else ""
            record = replace(record, status="skipped", reason=f"{NO_CONCLUSION}{cut}")
        if found.reason:
            record = replace(record, status="failed", reason=found.reason)
        records[i] = record
    return records


def _answered(study: DraftStudy, pool: Pool, readers: Readers, records: list[DraftRecord]) -> list[DraftRecord]:
    """The answers after the untouched drafts."""
    good = [i for i, record in enumerate(records) if record.status == "ok"]
    if not good:
        return records
    closing = tuple(study.style.closing(immediate=False))
    trees = []
    for i in good:
        record = records[i]
        branch = Branch(len(record.prompt_ids) + len(record.draft_ids), closing,
                        row_seed(study, record.problem.problem_id, "answer"))  # fmt: skip
        trees.append(Tree((*record.prompt_ids, *record.draft_ids), (branch,)))
    (outcome,) = pool.map(spec_of(study), [ContinueItem(tuple(trees), answer_settings(study))])
    if outcome.error is not None:
        return [replace(r, status="failed", reason=outcome.error) if r.status == "ok" else r for r in records]
    texts = [
        Text(records[i].problem, decode(study.style.tokenizer, made.ids))
        for i, (made,) in zip(good, outcome.value, strict=True)
    ]
    for i, text, read in zip(good, texts, readers.conclusions(texts), strict=True):
        records[i] = replace(records[i], answer_text=text.text, answer=read.letter)
    return records


def answer_settings(study: DraftStudy) -> Settings:
    """How answers after a draft are generated."""
    config = study.config
    return Settings(config.limits.answer, {}, config.sampling, config.engine.max_cache_tokens)


def spec_of(study: DraftStudy) -> DraftSpec:
    """The engine of a study's model."""
    return DraftSpec(study.model, study.config.engine)
