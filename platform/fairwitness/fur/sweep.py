"""A FUR sweep: every step of every CoT unlearned at every rate."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import pandas as pd

from fairwitness.analysis.faithfulness import LOSS_COLUMNS, cell_faithfulness, counted_iterations, iteration_means
from fairwitness.analysis.identity import cell_id
from fairwitness.analysis.step_results import TASK_COLUMNS, agreement
from fairwitness.experiment.data_set import refusal_lines
from fairwitness.experiment.measure import CellLog, Measure, Session, Supplies
from fairwitness.fur.config import FurSweepConfig, StudyConfig
from fairwitness.fur.dry_run import dry_run
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study import FUR_CODE, FurStudy
from fairwitness.fur.study_run import FurStudyRun
from fairwitness.records.run_dir import of_run
from fairwitness.records.store import Store
from fairwitness.stats.bootstrap import named_rng

log = logging.getLogger(__name__)

StudyConfigT = TypeVar("StudyConfigT", bound=StudyConfig)


class FurMeasure(Measure[StudyConfigT]):
    """A measure that unlearns; its items are the tasks of its studies' cells."""

    code = FUR_CODE
    studies: Sequence[FurStudy]

    def __init__(self, config: StudyConfigT, supplies: Supplies) -> None:
        """Reads data sets, looks at models, and names refused records.

        Raises:
            FairwitnessError: See `prepare_studies`.
        """
        super().__init__(config)
        self.studies = prepare_studies(config, supplies.loaders)
        for line in refusal_lines((study.data for study in self.studies), "the report names all"):
            log.warning("%s", line)
        self.cell_keys = [study.cell_key(lr) for study in self.studies for lr in study.rates]

    def counts(self, store: Store) -> Counter[str]:
        """See `Measure.counts`; a task counts once, whatever its iterations."""
        rows = store.read("unlearning", ["task_key", "status"], of_run(self.row_keys, "cell_key")).to_pylist()
        counts = Counter({row["task_key"]: row["status"] for row in rows}.values())
        refused = {study.data.loaded.name: len(study.data.loaded.refused) for study in self.studies}
        counts["refused"] = sum(refused.values())
        return counts

    @classmethod
    def cells(cls, store: Store, row: Mapping[str, Any], keys: Sequence[str] | None = None) -> Iterator[CellLog]:
        """See `Measure.cells`; a cell is one rate of one study."""
        yield from summarise_cells(store, row if keys is None else {**row, "cell_keys": keys})

    def log_cell(self, session: Session, key: str) -> None:
        """Logs a cell that is over."""
        session.log(self.cells(session.store, self.row_keys, [key]))

    def dry_run(self) -> Iterator[str]:
        """See `Measure.dry_run`; calibrated on a few problems."""
        yield from dry_run(self.config, self.studies)


class FurSweep(FurMeasure[FurSweepConfig]):
    """Every model on every data set at every rate."""

    job = "fur_sweep"

    def measure(self, session: Session) -> None:
        """See `Measure.measure`; studies one after another, so that each model is loaded once."""
        for study in self.studies:
            FurStudyRun(study, session, on_cell=partial(self.log_cell, session)).run()


def summarise_cells(store: Store, row: Mapping[str, Any] = MappingProxyType({})) -> list[CellLog]:
    """Summaries of cells, in the order of model, data set, method, rank and rate.

    Problems count as in the report; counts of tasks are of all problems.

    Args:
        store: The store of a run.
        row: The run's row in `runs`, or its keys of cells and problems; without them all counts.

    Raises:
        StoreError: The store cannot be read.
    """
    rows = store.read("unlearning", _COLUMNS, of_run(row, "cell_key")).to_pandas()
    cots = store.read("cots", ["scope_key", "problem_key", "agree"]).to_pandas()
    agree = {scope: agreement(part) for scope, part in cots.groupby("scope_key")}
    parts = [part for _, part in rows.groupby("cell_key")]
    return [_summary(part, agree.get(part["scope_key"].iloc[0], {})) for part in sorted(parts, key=_order)]


_COLUMNS = [
    *(*TASK_COLUMNS, "scope_key", "model_revision", "seed", "cot_step_logprob", *LOSS_COLUMNS),
]
_TOTALS = ("efficacy", "specificity", "ff_hard_any", "ff_hard_final", "ff_soft_final")


def _order(cell: pd.DataFrame) -> tuple[Any, ...]:
    return cell_id(cell.iloc[0]).order


def _summary(rows: pd.DataFrame, agree: Mapping[str, bool | None]) -> CellLog:
    first = rows.iloc[0]
    seed = None if pd.isna(first["seed"]) else int(first["seed"])
    cell = cell_faithfulness(rows, agree, rng=named_rng(seed or 0, *cell_id(first).draw_names))
    params = cell.columns() | {"model_revision": first["model_revision"], "seed": seed}
    totals: dict[str, float | None] = {name: getattr(cell, name).value for name in _TOTALS}
    totals["num_problems"] = cell.num_problems_counted or None
    counts = {name: float(getattr(cell, name)) for name in ("num_tasks_ok", "num_tasks_skipped", "num_tasks_failed")}
    means = iteration_means(counted_iterations(rows, agree))
    by_iteration = {
        int(str(number)): {str(name): float(value) for name, value in row.dropna().items()}
        for number, row in means.iterrows()
    }
    return CellLog(
        key=cell.cell_key,
        params={name: value for name, value in params.items() if pd.notna(value)},
        metrics_by_iteration=by_iteration,
        totals=counts | {name: float(value) for name, value in totals.items() if value is not None},
    )
