"""What a search found: the selected rate or the nearest miss, what it took, and the rows of `trials`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.analysis.faithfulness import (
    COMPLETE,
    FAILED,
    CellFaithfulness,
    ChosenRate,
    Infeasible,
    rates_of,
)
from fairwitness.fleet.trials import Shown
from fairwitness.fur.search.bench import Bench, known_rates
from fairwitness.fur.search.policies import Evidence, Verdict, judge
from fairwitness.fur.study import FurStudy
from fairwitness.records.keys import key_of


@dataclass(frozen=True)
class TriedRate:
    """A rate that was tried.

    Attributes:
        evidence: What it showed.
        verdict: Whether it keeps specificity.
        cell: Its cell, on the problems that its trials asked for.
    """

    evidence: Evidence
    verdict: Verdict
    cell: CellFaithfulness

    @property
    def decision(self) -> str:
        """Why its last trial ended."""
        return decision(self.evidence, self.verdict)


@dataclass(frozen=True)
class SearchOutcome:
    """What a search found for one study.

    Attributes:
        study: The study; its rates are all candidates.
        tried: The rates that were tried, the first one first.
        choice: The selected rate, or why there is none.
        num_tasks_per_rate: Tasks of one rate on all problems.
    """

    study: FurStudy
    tried: tuple[TriedRate, ...]
    choice: ChosenRate | Infeasible
    num_tasks_per_rate: int

    @property
    def num_tasks(self) -> int:
        """Tasks that the search took."""
        return sum(one.cell.num_tasks_ok + one.cell.num_tasks_failed for one in self.tried)

    @property
    def num_grid_tasks(self) -> int:
        """Tasks that all candidates on all problems take."""
        return self.num_tasks_per_rate * len(self.study.rates)

    @property
    def is_at_the_end(self) -> bool:
        """Whether the selected rate is the highest candidate, so that a higher one may be better."""
        return isinstance(self.choice, ChosenRate) and self.choice.cell.lr == max(self.study.rates)


def outcome_of(bench: Bench, done: Sequence[Shown]) -> SearchOutcome:
    """Applies the learning-rate rule to the rates that were measured on all problems.

    Args:
        bench: The study's bench.
        done: What its trials have shown, in the order in which they ended.
    """
    known = known_rates(done)
    order = dict.fromkeys(float(shown["lr"]) for shown in done)
    config = bench.study.config
    verdicts = {lr: judge(known[lr], config.min_specificity) for lr in order}
    keys = {lr: bench.study.cell_key(lr) for lr in order}
    decisions = {keys[lr]: decision(known[lr], verdict) for lr, verdict in verdicts.items()}
    rows = pd.concat([bench.rows(lr, known[lr].num_batches) for lr in order])
    rates = rates_of(rows, bench.agree, decisions, seed=config.seed, min_specificity=config.min_specificity)
    cells = {cell.cell_key: cell for cell in rates.cells}
    tried = tuple(TriedRate(known[lr], verdicts[lr], cells[keys[lr]]) for lr in order)
    return SearchOutcome(bench.study, tried, rates.choice, bench.num_tasks)


def decision(evidence: Evidence, verdict: Verdict) -> str:
    """Why the last trial of a rate ended, as in `trials`."""
    if evidence.failure is not None:
        return FAILED
    return COMPLETE if evidence.is_complete else f"{verdict.value} early"


def trial_rows(outcome: SearchOutcome, run_key: str) -> list[dict[str, Any]]:
    """Rows of `trials`.

    Args:
        outcome: What was found.
        run_key: Key of the job's row in `runs`.
    """
    study = outcome.study
    common = {"run_key": run_key, "scope_key": study.scope_key, "min_specificity": study.config.min_specificity}
    return [{**common, **_columns(outcome, index, run_key)} for index in range(len(outcome.tried))]


def _columns(outcome: SearchOutcome, index: int, run_key: str) -> Mapping[str, Any]:
    one = outcome.tried[index]
    cell, failure = one.cell, one.evidence.failure
    selected = isinstance(outcome.choice, ChosenRate) and outcome.choice.cell.cell_key == cell.cell_key
    has_verdict = failure is None and cell.specificity.value is not None
    return {
        "key": key_of(run=run_key, cell=cell.cell_key),
        "cell_key": cell.cell_key,
        "trial_index": index,
        **cell.columns(),
        "num_problems": cell.efficacy.num_clusters,
        "num_tasks_ok": cell.num_tasks_ok,
        "efficacy": cell.efficacy.value,
        "efficacy_low": cell.efficacy.low,
        "efficacy_high": cell.efficacy.high,
        "specificity": cell.specificity.value,
        "specificity_low": cell.specificity.low,
        "specificity_high": cell.specificity.high,
        "is_feasible": one.verdict is Verdict.FEASIBLE if has_verdict else None,
        "is_selected": selected,
        "decision": one.decision,
        "status": "ok" if failure is None else "failed",
        "reason": failure,
    }
