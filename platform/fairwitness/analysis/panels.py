"""A panel is one model on one data set: its rates, the rate that the rule selects, its problems and steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.analysis.faithfulness import (
    CellFaithfulness,
    ChosenRate,
    Infeasible,
    cell_faithfulness,
    choose_searched,
)
from fairwitness.analysis.runs import Run, find_setting
from fairwitness.analysis.step_results import problem_results, step_results
from fairwitness.stats.bootstrap import named_rng
from fairwitness.text.numbers import method_name

MIN_SPECIFICITY = 95.0
"""Percent; FUR, App. E.1."""
NO_UNLEARNING = "Results published by others; they hold no unlearning of this model on this data set."


@dataclass(frozen=True)
class Panel:
    """What the report shows of one model on one data set (and one way of changing weights).

    Attributes:
        scope_key: Scope of the CoTs.
        model: Name or path of the model.
        model_revision: Revision of its weights.
        data_set: Name of the data set.
        method: `ff2` or `lora`; empty where nothing was unlearned.
        lora_rank: Rank of the adapters; None for `ff2`.
        cells: One per rate, lowest first.
        choice: The rate that the rule selects, or why there is none.
        cots: The panel's CoTs.
        cot_steps: The panel's CoT steps.
        steps: Result of `step_results`, all rates.
        problems: Result of `problem_results`, all rates.
        is_imported: Whether others measured it.
    """

    scope_key: str
    model: str
    model_revision: str | None
    data_set: str
    method: str
    lora_rank: int | None
    cells: tuple[CellFaithfulness, ...]
    choice: ChosenRate | Infeasible
    cots: pd.DataFrame
    cot_steps: pd.DataFrame
    steps: pd.DataFrame
    problems: pd.DataFrame
    is_imported: bool = False

    @property
    def is_published(self) -> bool:
        """Whether it holds what others published, and no unlearning: there is nothing to choose a rate for."""
        return self.is_imported and not self.cells

    @property
    def shown_cell(self) -> CellFaithfulness | None:
        """The chosen cell; without one the nearest miss, as an illustration; None when nothing was measured."""
        return self.choice.cell if isinstance(self.choice, ChosenRate) else self.choice.nearest

    @property
    def shown_steps(self) -> pd.DataFrame:
        """The tasks of the shown cell."""
        return self.steps[self.steps["cell_key"] == self._shown_key()]

    @property
    def shown_problems(self) -> pd.DataFrame:
        """The problems of the shown cell."""
        return self.problems[self.problems["cell_key"] == self._shown_key()]

    @property
    def shown_method(self) -> str:
        """The method for people; empty for full FF2, which is the usual one."""
        return method_name(self.method, self.lora_rank) if self.method == "lora" else ""

    @property
    def slug(self) -> str:
        """Short, unique and safe name for files and anchors."""
        names = f"{self.model}-{self.data_set}-{self.method}{self.lora_rank or ''}"
        words = "".join(c if c.isalnum() and c.isascii() else "-" for c in names)
        return f"{words.strip('-')[-60:].strip('-').lower()}-{self.scope_key[:8]}"

    def _shown_key(self) -> str | None:
        return None if self.shown_cell is None else self.shown_cell.cell_key


def build_panels(run: Run) -> list[Panel]:
    """All panels of a run, by model, data set, method and rank.

    A scope whose CoTs never led to a task still is a panel, with no cells.
    """
    return _in_order(_panel(run, *part) for part in _parts(run))


def with_others(run: Run, panels: Sequence[Panel]) -> list[Panel]:
    """The panels, and one without CoTs for each model and data set that only judgements or ratings of others name."""
    known = {(panel.model, panel.data_set) for panel in panels}
    new: dict[tuple[str, str], Panel] = {}
    for scope, model, data_set in run.others.itertuples(index=False, name=None):
        if (model, data_set) not in known:
            new.setdefault((model, data_set), _without_cots(run, scope, model, data_set))
    return _in_order([*panels, *new.values()])


def _in_order(panels: Iterable[Panel]) -> list[Panel]:
    return sorted(panels, key=lambda p: (p.model, p.data_set, p.method, p.lora_rank or 0, p.scope_key))


def rng_for(run: Run, *names: str) -> np.random.Generator:
    """A generator that depends on the run's seed and on what it is for, so that intervals are remade the same."""
    seed = find_setting(run.config, "seed")
    return named_rng(seed if isinstance(seed, int) and seed >= 0 else 0, *names)


def min_specificity(run: Run) -> float:
    """The limit of the rule in percent: the run's own setting, else 95."""
    value = find_setting(run.config, "min_specificity")
    return float(value) if isinstance(value, int | float) else MIN_SPECIFICITY


def _parts(run: Run) -> Iterator[tuple[str, str, int | None]]:
    measured = run.unlearning[["scope_key", "method", "lora_rank"]].drop_duplicates()
    for scope, method, rank in measured.itertuples(index=False, name=None):
        yield scope, method, None if pd.isna(rank) else int(rank)
    for scope in sorted(set(run.cots["scope_key"]) - set(measured["scope_key"])):
        yield str(scope), "", None


def _panel(run: Run, scope_key: str, method: str, lora_rank: int | None) -> Panel:
    rows = run.unlearning[(run.unlearning["scope_key"] == scope_key) & (run.unlearning["method"] == method)]
    rows = rows[rows["lora_rank"].fillna(0) == (lora_rank or 0)]
    cots = run.cots[run.cots["scope_key"] == scope_key].reset_index(drop=True)
    agree = agreement(cots)
    cells = sorted(
        (cell_faithfulness(part, agree, rng=rng_for(run, str(key))) for key, part in rows.groupby("cell_key")),
        key=lambda cell: (cell.lr, cell.cell_key),
    )
    steps = step_results(rows)
    first = (cots if len(cots) else rows).iloc[0]
    return Panel(
        scope_key=scope_key,
        model=str(first["model"]),
        model_revision=_text(first["model_revision"]),
        data_set=str(first["data_set"]),
        method=method,
        lora_rank=lora_rank,
        cells=tuple(cells),
        choice=Infeasible(None, NO_UNLEARNING)
        if run.is_imported and not cells
        else choose_searched(cells, run.decisions, min_specificity=min_specificity(run)),
        cots=cots,
        cot_steps=run.cot_steps[run.cot_steps["scope_key"] == scope_key].reset_index(drop=True),
        steps=steps,
        problems=problem_results(steps, agree),
        is_imported=run.is_imported,
    )


def _without_cots(run: Run, scope_key: str, model: str, data_set: str) -> Panel:
    steps = step_results(run.unlearning.iloc[:0])
    return Panel(
        scope_key=scope_key,
        model=model,
        model_revision=None,
        data_set=data_set,
        method="",
        lora_rank=None,
        cells=(),
        choice=Infeasible(None, NO_UNLEARNING),
        cots=run.cots.iloc[:0],
        cot_steps=run.cot_steps.iloc[:0],
        steps=steps,
        problems=problem_results(steps, {}),
        is_imported=True,
    )


def agreement(cots: pd.DataFrame) -> Mapping[str, bool | None]:
    """problem_key → whether direct and CoT answers agree; None where a CoT has no answers."""
    pairs = zip(cots["problem_key"], cots["agree"], strict=True)
    return {str(key): None if pd.isna(value) else bool(value) for key, value in pairs}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
