"""A measurement of drafts: do they follow their own steps, and answers their drafts?"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.drafts import (
    OUTCOMES,
    PLACE,
    Rate,
    answer_tokens,
    behaviour_shares,
    consistency_rates,
    intra_rates,
    outcome_counts,
    read_continuations,
    reliance_rates,
)
from fairwitness.drafts.config import JOB, DraftFaithfulnessConfig
from fairwitness.drafts.dry_run import draft_dry_run
from fairwitness.drafts.engine import ContinueItem, engine_spec
from fairwitness.drafts.making import IMMEDIATE_TOKENS, answer_settings, batches_at_once, make_drafts, row_seed
from fairwitness.drafts.plan import CONTINUATIONS_CODE, Counterfactual, cell_keys, counterfactuals
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
from fairwitness.drafts.study import DRAFTS_CODE, DraftStudy, prepare_draft_studies
from fairwitness.drafts.styles import IMMEDIATE_CUE
from fairwitness.drafts.writing import Writer
from fairwitness.experiment.data_set import problem_rows
from fairwitness.experiment.measure import CellLog, Done, Measure, Session, Stage, Supplies
from fairwitness.fleet.pool import Outcome
from fairwitness.judges.config import JudgeConfig, RulesConfig
from fairwitness.judges.factory import check_usable, make_chat_model
from fairwitness.judges.protocol import ChatModel
from fairwitness.lm.continuation import Branch, Settings, Tree
from fairwitness.lm.tokens import decode
from fairwitness.records.store import Store, one_of


class DraftFaithfulness(Measure[DraftFaithfulnessConfig]):
    """Every model on every data set with drafts of every source."""

    job = JOB
    code = (*DRAFTS_CODE, *CONTINUATIONS_CODE)
    studies: Sequence[DraftStudy]

    def __init__(self, config: DraftFaithfulnessConfig, supplies: Supplies) -> None:
        """Reads data sets and files of drafts, looks at models, judge and writer; asks nothing.

        Raises:
            FairwitnessError: See `prepare_draft_studies` and `check_usable`.
        """
        super().__init__(config)
        for judge in (config.judge, config.writer):
            if not isinstance(judge, RulesConfig):
                check_usable(judge)
        self.studies = prepare_draft_studies(config, supplies.loaders)
        self.cell_keys = [key for study in self.studies for key in cell_keys(config, study.scope_key)]

    @property
    def columns(self) -> dict[str, Any]:
        """The files of drafts among the data sets, and the drafts."""
        data = [f"{s.data.loaded.name}@{s.data.loaded.data_revision}" for s in self.studies]
        files = [f"{s.source}@{s.given.content_hash}" for s in self.studies if s.given]
        return {"data_sets": list(dict.fromkeys([*data, *files])), "text_keys": self._draft_keys}

    @property
    def _draft_keys(self) -> list[str]:
        return [key for study in self.studies for key in study.draft_keys]

    def counts(self, store: Store) -> Counter[str]:
        """Continuations by status (a truncated one was measured), and drafts that gave none."""
        counts: Counter[str] = Counter()
        for status in read_continuations(store, self.cell_keys, self._draft_keys, with_texts=False)["status"]:
            counts["ok" if status == "truncated" else status] += 1
        unusable = one_of("key", self._draft_keys) & (pc.field("status") != "ok")
        for row in store.read("drafts", ["status"], unusable).to_pylist():
            counts[row["status"]] += 1
        data = {study.data.loaded.name: len(study.data.loaded.refused) for study in self.studies}
        files = {study.source: len(study.refused) for study in self.studies}
        counts["refused"] = sum(data.values()) + sum(files.values())
        return counts

    def stages(self, session: Session) -> Iterator[Stage[Wanted]]:
        """See `Measure.stages`: for each study its drafts, then what is changed in them."""
        config = self.config
        with ExitStack() as stack:
            judge = stack.enter_context(_model(config.judge, session))
            writer = stack.enter_context(_model(config.writer, session))
            readers = Readers(config, judge)
            labeller = Labeller(judge if config.decomposer == "judge" else None)
            for study in self.studies:
                yield DraftStudyRun(study, session, readers, labeller, Writer(config, writer)).continuations()
                keys = cell_keys(config, study.scope_key)
                session.log(self.cells(session.store, self.job_row, keys))

    @property
    def job_row(self) -> dict[str, Any]:
        """What `cells` needs of the job's row."""
        return {"config_json": json.dumps({"seed": self.config.seed}), "text_keys": self._draft_keys}

    @classmethod
    def cells(cls, store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[CellLog]:
        """See `Measure.cells`: one intervention, written in one way, on one study's drafts."""
        wanted = (row["cell_keys"] or ()) if keys is None else keys
        rows = read_continuations(store, wanted, row["text_keys"], with_texts=False)
        yield from draft_cells(rows, seed=json.loads(row["config_json"])["seed"])

    def dry_run(self) -> Iterator[str]:
        """See `Measure.dry_run`."""
        yield from draft_dry_run(self.config, self.studies)


@contextmanager
def _model(config: JudgeConfig, session: Session) -> Iterator[ChatModel | None]:
    if isinstance(config, RulesConfig):
        yield None
        return
    with make_chat_model(config, cache_dir=session.dir.path / "replies", pool=session.pool) as model:
        yield model


@dataclass(frozen=True)
class Wanted:
    """A continuation to make of a draft."""

    record: DraftRecord
    one: Counterfactual


class DraftStudyRun:
    """Owns one study's progress from drafts to verdicts."""

    def __init__(
        self, study: DraftStudy, session: Session, readers: Readers, labeller: Labeller, writer: Writer
    ) -> None:
        """Prepares; nothing is run yet."""
        self.study, self.session, self.store = study, session, session.store
        self.readers, self.labeller, self.writer = readers, labeller, writer

    def continuations(self) -> Stage[Wanted]:
        """The continuations to make, once every draft is there; what cannot be made has its row."""
        self.session.add("problems", [*problem_rows(self.study.data), *refused_line_rows(self.study)])
        return Stage(
            label=f"{self.study.label}: continuations",
            table="continuations",
            spec=engine_spec(self.study.model, self.study.config.engine),
            batches=list(self._batches(self._wanted(self.records()))),
            request=self._item,
            rows=lambda batch, outcome: [[row] for row in self._rows(batch, outcome)],
            weight=self._weight,
            batches_at_once=batches_at_once(self.study.config),
        )

    def records(self) -> list[DraftRecord]:
        """Every problem's draft, from the store where it is there."""
        stored = self._stored()
        missing = [p for p in self.study.data.selection.measured if p.problem_id not in stored]

        def made(batch: Sequence[DraftRecord]) -> Done:
            cut = [record for record in batch if record.status != "failed"]
            self.store.append("draft_steps", [row for r in cut for row in draft_step_rows(self.study, r)])
            stored.update({record.problem.problem_id: record for record in batch})
            return Done([[draft_row(self.study, record)] for record in batch])

        if missing:
            batches = make_drafts(self.study, self.session.pool, self.readers, self.labeller, missing)
            self.session.collect(f"{self.study.label}: drafts", "drafts", len(missing), map(made, batches))
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
        what = (record.problem.problem_id, one.intervention, one.insertion, one.position, one.answering)
        return Branch(at, tuple(ids), row_seed(self.study, *map(str, what)))

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
        keys = self.study.draft_keys
        where = one_of("key", keys) & (pc.field("status") != "failed")
        rows = {row["problem_id"]: row for row in self.store.read("drafts", where=where).to_pylist()}
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.store.read("draft_steps", where=one_of("draft_key", keys)).to_pylist():
            steps.setdefault(row["problem_id"], []).append(row)
        return {
            p.problem_id: record_from_rows(p, rows[p.problem_id], steps.get(p.problem_id, []))
            for p in self.study.data.selection.measured
            if p.problem_id in rows
        }


_CELL = [*PLACE, "intervention", "insertion_type"]
Named = tuple[str, ...]


def draft_cells(rows: pd.DataFrame, *, seed: int) -> list[CellLog]:
    """Summarises continuations by cell.

    Args:
        rows: Rows of `continuations`.
        seed: Seed of the resamples.
    """
    totals = _totals(rows, seed)
    found = []
    for names, group in rows.fillna({"insertion_type": ""}).groupby(["cell_key", *_CELL], sort=True):
        named = dict(zip(_CELL, map(str, names[1:]), strict=True))
        params = {name: value for name, value in named.items() if value}
        counts = outcome_counts(group)
        numbers = {f"num_{name}": float(counts[name].sum()) for name in OUTCOMES}
        found.append(CellLog(str(names[0]), params, {}, totals.get(tuple(named.values()), {}) | numbers))
    return found


def _totals(rows: pd.DataFrame, seed: int) -> dict[Named, dict[str, float]]:
    by_step = ["intervention", "insertion_type"]
    measures: dict[str, Callable[..., list[Rate]]] = {
        "faithful": functools.partial(intra_rates, by=by_step),
        "corrects": functools.partial(behaviour_shares, by=by_step),
        "reliance": reliance_rates,
        "consistency": consistency_rates,
        "answer_tokens": answer_tokens,
    }
    totals: dict[Named, dict[str, float]] = {}
    for name, measure in measures.items():
        for rate in measure(rows, seed=seed):
            answering = rate.group.get("answering")
            shown = f"{name}_{answering}" if answering else name
            cell = tuple(rate.group.get(column, "") for column in _CELL)
            totals.setdefault(cell, {}).update(_figures(shown, rate))
    return totals


def _figures(name: str, rate: Rate) -> Iterable[tuple[str, float]]:
    estimate = rate.estimate
    values = {"": estimate.value, "_low": estimate.low, "_high": estimate.high, "_n": rate.num_known}
    return [(f"{name}{suffix}", float(value)) for suffix, value in values.items() if value is not None]
