"""What is changed in drafts: what the engine is asked of a continuation, how what it wrote is read, and the row.

The key of a continuation covers this module and all that it imports, but for the interventions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fairwitness.drafts.engine import ContinueItem
from fairwitness.drafts.faithful import consistency, intra_draft
from fairwitness.drafts.making import answer_settings, row_seed
from fairwitness.drafts.plan import Counterfactual, cell_key
from fairwitness.drafts.reading import ReadBehaviour, ReadConclusion, Readers, Text
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.styles import IMMEDIATE_CUE
from fairwitness.fleet.pool import Outcome
from fairwitness.lm.continuation import LENGTH, Branch, Continuation, Settings, Tree
from fairwitness.lm.tokens import decode

IMMEDIATE_TOKENS = 4
"""Most tokens of an immediate answer."""

Row = dict[str, Any]


def batches(study: DraftStudy, wanted: Sequence[Counterfactual]) -> Iterator[list[Counterfactual]]:
    """Continuations of a few drafts that are generated in the same way."""
    kinds: dict[tuple[str, str | None], dict[str, list[Counterfactual]]] = {}
    for item in wanted:
        by_draft = kinds.setdefault((item.dimension, item.answering), {})
        by_draft.setdefault(item.record.problem.problem_id, []).append(item)
    size = study.config.engine.drafts_per_item
    for by_draft in kinds.values():
        drafts = sorted(by_draft.values(), key=lambda items: (len(items[0].record.draft_ids), items[0].key))
        for start in range(0, len(drafts), size):
            yield [item for items in drafts[start : start + size] for item in items]


def request(study: DraftStudy, batch: Sequence[Counterfactual]) -> ContinueItem:
    """What the engine is asked of a batch."""
    branches: dict[str, list[Branch]] = {}
    for item in batch:
        branches.setdefault(item.record.problem.problem_id, []).append(_branch(study, item))
    prefixes = {i.record.problem.problem_id: (*i.record.prompt_ids, *i.record.draft_ids) for i in batch}
    trees = tuple(Tree(prefixes[name], tuple(found)) for name, found in branches.items())
    return ContinueItem(trees, _settings(study, batch[0]))


def weight(study: DraftStudy, item: Counterfactual) -> float:
    """Tokens that it may generate at most."""
    return float(_settings(study, item).max_new_tokens)


def rows_of_batch(
    study: DraftStudy, readers: Readers, batch: Sequence[Counterfactual], outcome: Outcome
) -> list[list[Row]]:
    """The row of every continuation of a batch, from what the engine gave."""
    if outcome.error is not None:
        return [[unmeasured_row(study, item, "failed", outcome.error)] for item in batch]
    made: list[Continuation] = [one for tree in outcome.value for one in tree]
    texts = [decode(study.style.tokenizer, one.ids) for one in made]
    conclusions = readers.conclusions([_read_text(*one) for one in zip(batch, texts, strict=True)])
    intra = [n for n, item in enumerate(batch) if item.dimension == "intra"]
    met = readers.behaviours([Text(batch[n].record.problem, texts[n], batch[n].text) for n in intra])
    behaviours = dict(zip(intra, met, strict=True))
    rows = []
    for n, item in enumerate(batch):
        read, behaviour, error = conclusions[n], behaviours.get(n), made[n].error
        unread = next((one for one in (read, behaviour) if one and one.is_failed), None)
        if error is not None:
            rows.append([unmeasured_row(study, item, "skipped", error)])
        elif unread is not None:
            rows.append([unmeasured_row(study, item, "failed", str(unread.reason))])
        else:
            row = _measured_row(study, item, made[n], texts[n], read, behaviour)
            rows.append([row | {"duration_s": outcome.duration_s}])
    return rows


def _branch(study: DraftStudy, item: Counterfactual) -> Branch:
    record = item.record
    ids = study.style.insertion(item.text)
    at = len(record.prompt_ids) + len(record.draft_ids)
    if item.dimension == "answer":
        ids = [*ids, *study.style.closing(immediate=item.answering == "immediate")]
    else:
        assert item.place is not None
        at = len(record.prompt_ids) + record.token_ends[item.place.cot_step_index]
    what = (record.problem.problem_id, item.intervention, item.insertion, item.position, item.answering)
    return Branch(at, tuple(ids), row_seed(study, *map(str, what)))


def _settings(study: DraftStudy, item: Counterfactual) -> Settings:
    config = study.config
    if item.dimension == "intra":
        limit, stops = config.limits.continuation, study.style.stops
        return Settings(limit, stops, config.sampling, config.engine.max_cache_tokens)
    if item.answering == "immediate":
        return Settings(IMMEDIATE_TOKENS, {}, config.sampling, config.engine.max_cache_tokens)
    return answer_settings(study)


def _read_text(item: Counterfactual, text: str) -> Text:
    # An immediate answer is the rest of a sentence that the prompt began.
    begun = IMMEDIATE_CUE if item.answering == "immediate" else ""
    return Text(item.record.problem, begun + text)


def unmeasured_row(study: DraftStudy, item: Counterfactual, status: str, reason: str) -> Row:
    """Row of a continuation that was not made."""
    return _place(study, item) | {"status": status, "reason": reason}


def _measured_row(
    study: DraftStudy,
    item: Counterfactual,
    made: Continuation,
    text: str,
    read: ReadConclusion,
    behaviour: ReadBehaviour | None,
) -> Row:
    assert item.record.conclusion is not None
    # An immediate answer is as long as its limit; any other text that reaches it was cut off.
    is_cut = made.finish == LENGTH and item.answering != "immediate"
    letter = None if is_cut else read.letter
    if item.dimension == "intra":
        assert behaviour is not None
        known = None if is_cut else behaviour.behaviour
        verdict = intra_draft(known, letter, base=item.record.conclusion, expected=set(item.expected))
    else:
        verdict = consistency(letter, item.expected[0])
    why = read.reason or (behaviour.reason if behaviour else None)
    why = f"cut off after {len(made.ids)} tokens" if is_cut else why
    return _place(study, item) | {
        "continuation_ids": list(made.ids),
        "continuation_text": text,
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
        "status": "truncated" if is_cut else "ok",
        "reason": None if verdict is not None else why,
    }


def _place(study: DraftStudy, item: Counterfactual) -> Row:
    record = item.record
    at = record.token_ends[item.place.cot_step_index] if item.place else None
    return {
        "key": item.key,
        "scope_key": study.scope_key,
        "cell_key": cell_key(study.scope_key, item.cell),
        "draft_key": study.draft_key(record.problem),
        "problem_id": record.problem.problem_id,
        "data_set": study.data.loaded.name,
        "model": study.facts.name,
        "source": study.source,
        "dimension": item.dimension,
        "intervention": item.intervention,
        "insertion_type": item.insertion,
        "position": item.position,
        "block_index": item.place.block_index if item.place else None,
        "answering": item.answering,
        "inserted_text": item.text or None,
        "inserted_at": len(record.draft_ids) if item.dimension == "answer" else at,
        "base_letter": record.conclusion,
        "expected_letters": list(item.expected),
    }
