"""A measurement of drafts: do they follow their own steps, and answers their drafts?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
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
from fairwitness.drafts.continuing import batches, request, rows_of_batch, unmeasured_row, weight
from fairwitness.drafts.dry_run import draft_dry_run
from fairwitness.drafts.engine import engine_spec
from fairwitness.drafts.making import batches_at_once, draft_row, draft_step_rows, make_drafts, record_from_rows
from fairwitness.drafts.plan import (
    CONTINUATIONS_CODE,
    WRITING_CODE,
    Cell,
    Counterfactual,
    cell_key,
    cells_of,
    counterfactuals,
)
from fairwitness.drafts.reading import Labeller, Readers
from fairwitness.drafts.steps import DraftRecord
from fairwitness.drafts.study import DRAFTS_CODE, DraftStudy, prepare_draft_studies
from fairwitness.drafts.writing import Writer
from fairwitness.experiment.data_set import problem_rows
from fairwitness.experiment.measure import CellLog, Done, Measure, Session, Stage, Supplies
from fairwitness.judges.config import JudgeConfig, LocalModelConfig, RulesConfig
from fairwitness.judges.factory import check_usable, make_chat_model
from fairwitness.judges.protocol import ChatModel
from fairwitness.records.store import Store, one_of


class DraftFaithfulness(Measure[DraftFaithfulnessConfig]):
    """Every model on every data set with drafts of every source.

    Attributes:
        cells_of_config: The cells of each study, see `cells_of`.
    """

    job = JOB
    code = (*DRAFTS_CODE, *CONTINUATIONS_CODE, *WRITING_CODE)
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
        self.cells_of_config = cells_of(config)
        self.cell_keys = [key for study in self.studies for key in self._cell_keys(study)]

    def _cell_keys(self, study: DraftStudy) -> list[str]:
        return [cell_key(study.scope_key, cell) for cell in self.cells_of_config.values()]

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

    def stages(self, session: Session) -> Iterator[Stage[Counterfactual]]:
        """See `Measure.stages`: for each study its drafts, then what is changed in them."""
        config = self.config
        with ExitStack() as stack:
            judge, writer = (stack.enter_context(_model(one, session)) for one in (config.judge, config.writer))
            readers, labeller = Readers(config, judge), Labeller(judge if config.decomposer == "judge" else None)
            for study in self.studies:
                session.add("problems", [*problem_rows(study.data), *study.refused_rows])
                run = _StudyRun(study, session, readers, labeller, Writer(config, writer))
                wanted = run.wanted(self.cells_of_config, run.records())
                yield Stage(
                    label=f"{study.label}: continuations",
                    table="continuations",
                    spec=engine_spec(study.model, config.engine),
                    batches=list(batches(study, wanted)),
                    request=partial(request, study),
                    rows=partial(rows_of_batch, study, readers),
                    weight=partial(weight, study),
                    batches_at_once=batches_at_once(config),
                )
                session.log(self.cells(session.store, self.job_row, self._cell_keys(study)))

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
    pool = session.pool if isinstance(config, LocalModelConfig) else None
    with make_chat_model(config, cache_dir=session.dir.path / "replies", pool=pool) as model:
        yield model


class _StudyRun:
    """Owns one study's progress from drafts to what is changed in them."""

    def __init__(
        self, study: DraftStudy, session: Session, readers: Readers, labeller: Labeller, writer: Writer
    ) -> None:
        self.study, self.session, self.store = study, session, session.store
        self.readers, self.labeller, self.writer = readers, labeller, writer

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
            drafts = make_drafts(self.study, self.session.pool, self.readers, self.labeller, missing)
            self.session.collect(f"{self.study.label}: drafts", "drafts", len(missing), map(made, drafts))
        return [stored[problem.problem_id] for problem in self.study.data.selection.measured]

    def wanted(self, cells: Mapping[Cell, str], records: Sequence[DraftRecord]) -> list[Counterfactual]:
        """The continuations that are to be made; what cannot be made gets its row here."""
        finished = self.store.finished_keys("continuations")
        good = [record for record in records if record.status == "ok"]
        texts = self.writer.write(good)
        planned = chain.from_iterable(
            counterfactuals(self.study.config, cells, self.study.draft_key(r.problem), r, *texts[r.problem.problem_id])
            for r in good
        )
        new = [one for one in planned if one.key not in finished]
        impossible = [unmeasured_row(self.study, one, "skipped", one.reason) for one in new if one.reason]
        self.store.append("continuations", impossible)
        return [one for one in new if one.reason is None]

    def _stored(self) -> dict[str, DraftRecord]:
        keys = self.study.draft_keys
        where = one_of("key", keys) & (pc.field("status") != "failed")
        rows = {row["problem_id"]: row for row in self.store.read("drafts", where=where).to_pylist()}
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.store.read("draft_steps", where=one_of("draft_key", keys)).to_pylist():
            steps.setdefault(row["problem_id"], []).append(row)
        # A process that was killed while it wrote may have left a draft without its steps; that one is made again.
        return {
            p.problem_id: record_from_rows(p, row, steps.get(p.problem_id, []))
            for p in self.study.data.selection.measured
            if (row := rows.get(p.problem_id)) and row["num_cot_steps"] == len(steps.get(p.problem_id, []))
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
        "faithful": partial(intra_rates, by=by_step),
        "corrects": partial(behaviour_shares, by=by_step),
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
