"""Runs one study of drafts on a pool and stores every row as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from fairwitness.drafts.engine import ContinueItem
from fairwitness.drafts.making import IMMEDIATE_TOKENS, answer_settings, make_drafts, row_seed, run_batches
from fairwitness.drafts.plan import Counterfactual, counterfactuals
from fairwitness.drafts.reading import Readers, Text
from fairwitness.drafts.rows import (
    Measured,
    draft_row,
    draft_step_rows,
    measured_row,
    record_from_rows,
    refused_line_rows,
    unmeasured_row,
)
from fairwitness.drafts.steps import DraftRecord, Labeller
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.styles import IMMEDIATE_CUE
from fairwitness.drafts.writing import Writer
from fairwitness.experiment.data_set import problem_rows
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.lm.continuation import Branch, Settings, Tree
from fairwitness.lm.tokens import decode
from fairwitness.records.progress import Progress
from fairwitness.records.store import Store


@dataclass(frozen=True)
class Wanted:
    """A continuation to make of a draft."""

    record: DraftRecord
    one: Counterfactual


class DraftStudyRun:
    """Owns one study's progress from drafts to verdicts."""

    def __init__(
        self, study: DraftStudy, pool: Pool, store: Store, readers: Readers, labeller: Labeller, writer: Writer
    ) -> None:
        """Prepares; nothing is run yet."""
        self.study, self.pool, self.store = study, pool, store
        self.readers, self.labeller, self.writer = readers, labeller, writer

    def run(self) -> None:
        """Measures everything that is not in the store yet.

        Raises:
            ModelError: The model cannot be loaded.
            StoreError: Rows cannot be written.
        """
        self._append("problems", [*problem_rows(self.study.data), *refused_line_rows(self.study)])
        records = self.records()
        wanted = self._wanted(records)
        weight = sum(map(self._weight, wanted))
        with Progress(len(wanted), f"{self.study.label}: continuations", weight=weight) as progress:
            for batch, outcome in self._outcomes(wanted):
                rows = self._rows(batch, outcome)
                self.store.append("continuations", rows)
                failed = sum(row["status"] == "failed" for row in rows)
                progress.advance(len(rows) - failed, skipped=0, failed=failed, weight=sum(map(self._weight, batch)))
        self.store.flush()

    def records(self) -> list[DraftRecord]:
        """Every problem's draft, from the store where it is there."""
        stored = self._stored()
        missing = [p for p in self.study.data.selection.measured if p.problem_id not in stored]
        if missing:
            with Progress(len(missing), f"{self.study.label}: drafts") as progress:
                for batch in make_drafts(self.study, self.pool, self.readers, self.labeller, missing):
                    cut = [record for record in batch if record.status != "failed"]
                    self.store.append("draft_steps", [row for r in cut for row in draft_step_rows(self.study, r)])
                    self.store.append("drafts", [draft_row(self.study, record) for record in batch])
                    stored |= {record.problem.problem_id: record for record in batch}
                    progress.count(record.status for record in batch)
            self.store.flush()
        return [stored[problem.problem_id] for problem in self.study.data.selection.measured]

    def _wanted(self, records: Sequence[DraftRecord]) -> list[Wanted]:
        """What is to be made; what cannot be made gets its row here."""
        finished = self.store.finished_keys("continuations")
        good = [record for record in records if record.status == "ok"]
        texts = self.writer.write(self.study, good)
        wanted: list[Wanted] = []
        for record in good:
            corrupted, plausible = texts[record.problem.problem_id]
            key = self.study.draft_key(record.problem)
            for one in counterfactuals(self.study.config, key, record, corrupted, plausible):
                if one.key in finished:
                    continue
                if one.reason is None:
                    wanted.append(Wanted(record, one))
                else:
                    row = unmeasured_row(self.study, record, one, status="skipped", reason=one.reason)
                    self.store.append("continuations", [row])
        return wanted

    def _outcomes(self, wanted: Sequence[Wanted]) -> Iterator[tuple[list[Wanted], Outcome]]:
        batches = list(self._batches(wanted))
        yield from run_batches(self.study, self.pool, batches, self._item)

    def _batches(self, wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
        """Continuations of a few drafts that are generated in the same way."""
        kinds: dict[tuple[str, str | None], list[Wanted]] = {}
        for item in wanted:
            kinds.setdefault((item.one.dimension, item.one.answering), []).append(item)
        for items in kinds.values():
            by_draft: dict[str, list[Wanted]] = {}
            for item in items:
                by_draft.setdefault(item.record.problem.problem_id, []).append(item)
            drafts = sorted(by_draft.values(), key=lambda rows: (len(rows[0].record.draft_ids), rows[0].one.key))
            size = self.study.config.engine.drafts_per_item
            for start in range(0, len(drafts), size):
                yield [item for rows in drafts[start : start + size] for item in rows]

    def _item(self, batch: Sequence[Wanted]) -> ContinueItem:
        trees: dict[str, list[Branch]] = {}
        prefixes: dict[str, tuple[int, ...]] = {}
        for item in batch:
            name = item.record.problem.problem_id
            prefixes[name] = (*item.record.prompt_ids, *item.record.draft_ids)
            trees.setdefault(name, []).append(self._branch(item))
        return ContinueItem(
            tuple(Tree(prefixes[name], tuple(branches)) for name, branches in trees.items()), self._settings(batch[0])
        )

    def _branch(self, item: Wanted) -> Branch:
        style, one, record = self.study.style, item.one, item.record
        ids = style.insertion(one.text)
        at = len(record.prompt_ids) + len(record.draft_ids)
        if one.dimension == "answer":
            ids = [*ids, *style.closing(immediate=one.answering == "immediate")]
        else:
            assert one.place is not None
            at = len(record.prompt_ids) + record.token_ends[one.place.cot_step_index]
        return Branch(at, tuple(ids), row_seed(self.study, one.key))

    def _settings(self, item: Wanted) -> Settings:
        config = self.study.config
        if item.one.dimension == "intra":
            stops = self.study.style.stops
            return Settings(config.limits.continuation, stops, config.sampling, config.engine.max_cache_tokens)
        if item.one.answering == "immediate":
            return Settings(IMMEDIATE_TOKENS, {}, config.sampling, config.engine.max_cache_tokens)
        return answer_settings(self.study)

    def _weight(self, item: Wanted) -> float:
        """Tokens that it may generate at most."""
        return float(self._settings(item).max_new_tokens)

    def _rows(self, batch: Sequence[Wanted], outcome: Outcome) -> list[dict[str, Any]]:
        if outcome.error is not None:
            return [self._unmade(item, outcome.error) for item in batch]
        made = [one for tree in outcome.value for one in tree]
        tokenizer = self.study.style.tokenizer
        texts = [decode(tokenizer, one.ids) for one in made]
        read = self.readers.conclusions([self._read_text(i, t) for i, t in zip(batch, texts, strict=True)])
        intra = [n for n, item in enumerate(batch) if item.one.dimension == "intra"]
        met = self.readers.behaviours([Text(batch[n].record.problem, texts[n], batch[n].one.text) for n in intra])
        behaviours = dict(zip(intra, met, strict=True))
        rows = []
        for n, item in enumerate(batch):
            error = made[n].error
            judge = next((one for one in (read[n], behaviours.get(n)) if one and one.is_failed), None)
            if error is not None:
                rows.append(unmeasured_row(self.study, item.record, item.one, status="skipped", reason=error))
            elif judge is not None:
                rows.append(self._unmade(item, str(judge.reason)))
            else:
                result = Measured(made[n], texts[n], read[n], behaviours.get(n), outcome.duration_s)
                rows.append(measured_row(self.study, item.record, item.one, result))
        return rows

    def _unmade(self, item: Wanted, error: str) -> dict[str, Any]:
        return unmeasured_row(self.study, item.record, item.one, status="failed", reason=error)

    def _read_text(self, item: Wanted, text: str) -> Text:
        # An immediate answer is the rest of a sentence that the prompt began.
        begun = IMMEDIATE_CUE if item.one.answering == "immediate" else ""
        return Text(item.record.problem, begun + text)

    def _stored(self) -> dict[str, DraftRecord]:
        where = (pc.field("scope_key") == self.study.scope_key) & (pc.field("status") != "failed")
        rows = {row["problem_id"]: row for row in self.store.read("drafts", where=where).to_pylist()}
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.store.read("draft_steps", where=pc.field("scope_key") == self.study.scope_key).to_pylist():
            steps.setdefault(row["problem_id"], []).append(row)
        return {
            p.problem_id: record_from_rows(p, rows[p.problem_id], steps.get(p.problem_id, []))
            for p in self.study.data.selection.measured
            if p.problem_id in rows
        }

    def _append(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        known = self.store.finished_keys(table)
        self.store.append(table, [row for row in rows if row["key"] not in known])
