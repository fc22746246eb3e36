"""A panel is one model on one data set: its rates, the rate that the rule selects, its problems and steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fairwitness.analysis.faithfulness import CellFaithfulness, ChosenRate, Infeasible, rates_of
from fairwitness.analysis.identity import PanelId
from fairwitness.analysis.runs import Run
from fairwitness.analysis.step_results import agreement, problem_results, step_results

NO_UNLEARNING = "Results published by others; they hold no unlearning of this model on this data set."


@dataclass(frozen=True)
class Panel(PanelId):
    """A panel with its rates, CoTs, steps and problems.

    Attributes:
        scope_key: Scope of the CoTs.
        model_revision: Revision of the model's weights.
        cells: One per rate, lowest first.
        choice: The rate that the rule selects, or why there is none.
        cots: The panel's CoTs.
        cot_steps: The panel's CoT steps.
        steps: Result of `step_results`, all rates.
        problems: Result of `problem_results`, all rates.
        is_imported: Whether others measured it.
    """

    scope_key: str
    model_revision: str | None
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
    def names(self) -> dict[str, Any]:
        """The columns that rows of tables about it begin with."""
        found = {"model": self.model, "model_revision": self.model_revision} | self.columns()
        return found | {"scope_key": self.scope_key}

    @property
    def chosen_cell(self) -> CellFaithfulness | None:
        """The cell of the rate that the rule selects; None where it selects none."""
        return self.choice.cell if isinstance(self.choice, ChosenRate) else None

    @property
    def no_rate_reason(self) -> str | None:
        """Why the rule selects none; None where it selects one."""
        return self.choice.reason if isinstance(self.choice, Infeasible) else None

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
    def step_texts(self) -> dict[tuple[str, int], str]:
        """(problem_id, cot_step_index) → text of the step."""
        rows = self.cot_steps
        columns = zip(rows["problem_id"], rows["cot_step_index"], rows["text"], strict=True)
        return {(str(problem_id), int(index)): text for problem_id, index, text in columns}

    @property
    def shown_method(self) -> str:
        """The method for people; empty for full FF2, which is the usual one."""
        return self.method_name if self.method == "lora" else ""

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
    return sorted(panels, key=lambda panel: (panel.order, panel.scope_key))


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
    first = (cots if len(cots) else rows).iloc[0]
    revision = first["model_revision"] if isinstance(first["model_revision"], str) else None
    named = PanelId(str(first["model"]), str(first["data_set"]), method, lora_rank)
    return _filled(run, named, scope_key, revision, rows, cots)


def _without_cots(run: Run, scope_key: str, model: str, data_set: str) -> Panel:
    named = PanelId(model, data_set, "", None)
    return _filled(run, named, scope_key, None, run.unlearning.iloc[:0], run.cots.iloc[:0])


def _filled(
    run: Run, named: PanelId, scope_key: str, revision: str | None, rows: pd.DataFrame, cots: pd.DataFrame
) -> Panel:
    agree = agreement(cots)
    rates = rates_of(rows, agree, run.decisions, seed=run.seed, min_specificity=run.min_specificity)
    is_published = run.is_imported and not rates.cells
    steps = step_results(rows)
    return Panel(
        **vars(named),
        scope_key=scope_key,
        model_revision=revision,
        cells=rates.cells,
        choice=Infeasible(None, NO_UNLEARNING) if is_published else rates.choice,
        cots=cots,
        cot_steps=run.cot_steps[run.cot_steps["scope_key"] == scope_key].reset_index(drop=True),
        steps=steps,
        problems=problem_results(steps, agree),
        is_imported=run.is_imported,
    )
