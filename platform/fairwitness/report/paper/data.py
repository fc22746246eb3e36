"""What the paper report is made from: the panels of one or several runs, and the tables of jobs that follow a sweep."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from fairwitness.analysis.capability import CellCapability
from fairwitness.analysis.faithfulness import CellFaithfulness
from fairwitness.analysis.frames import Results
from fairwitness.analysis.health import Health, panel_health
from fairwitness.analysis.judgements import JudgedCell
from fairwitness.analysis.panels import Panel, build_panels
from fairwitness.analysis.runs import Run
from fairwitness.errors import StoreError
from fairwitness.problems.problem import Problem
from fairwitness.report.truth import problems_of

PEARSON = 0.889
"""Pearson correlation of efficacy and ff-hard over models, data sets and rates (FUR, §6.2)."""

MODELS: Mapping[str, str] = {
    "LLaMA-8B": "LLaMA-8B",
    "LLaMA-3-8B": "LLaMA-8B",
    "Meta-Llama-3-8B-Instruct": "LLaMA-8B",
    "LLaMA-3B": "LLaMA-3B",
    "LLaMA-3-3B": "LLaMA-3B",
    "Llama-3.2-3B-Instruct": "LLaMA-3B",
    "Mistral-2": "Mistral-2",
    "Mistral-7B-Instruct-v0.2": "Mistral-2",
    "Phi-3": "Phi-3",
    "Phi-3-mini-4k-instruct": "Phi-3",
}
"""The paper's name of a model by the last part of its name here."""

DATA_SETS = ("arc_challenge", "openbookqa", "bbh_sports", "strategyqa", "truthfulqa")


class _Key(NamedTuple):
    table: str
    model: str
    data_set: str
    measure: str
    lr: float | None


def published(table: str, model: str, data_set: str, measure: str, lr: float | None = None) -> str | None:
    """A figure as the paper prints it, or None where it has none.

    Args:
        table: For example `table_2`.
        model: Name of the model here.
        data_set: Name of the data set here.
        measure: For example `ff_hard`.
        lr: Learning rate, where the table has a line for each.
    """
    name = MODELS.get(model.rsplit("/", 1)[-1])
    return None if name is None else _figures().get(_Key(table, name, data_set, measure, lr))


@cache
def _figures() -> Mapping[_Key, str]:
    text = resources.files("fairwitness.report.paper").joinpath("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        _Key(r["table"], r["model"], r["data_set"], r["measure"], float(r["lr"]) if r["lr"] else None): r["value"]
        for r in rows
    }


@dataclass(frozen=True, eq=False)
class Entry:
    """One model on one data set by one method, from one run.

    Attributes:
        run: The run.
        run_name: Its name.
        panel: What the sweep measured.
        problems: problem_key → problem.
        capabilities: General capability at every rate, where it was measured.
        label: The model, with method and run where others have the same model: a line of a table.
        base_label: The same without the method.
    """

    run: Run
    run_name: str
    panel: Panel
    problems: Mapping[str, Problem]
    capabilities: tuple[CellCapability, ...] = ()
    label: str = ""
    base_label: str = ""

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.panel.model

    @property
    def data_set(self) -> str:
        """Name of the data set."""
        return self.panel.data_set

    @property
    def cell(self) -> CellFaithfulness | None:
        """The rate that tables show: the chosen one, else the nearest miss; None when nothing was measured."""
        return self.panel.shown_cell

    @property
    def is_chosen(self) -> bool:
        """Whether the rule selects the shown rate."""
        return self.panel.chosen_cell is not None

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Model, data set (both with revision), method and rank: entries of other runs can have the same."""
        panel = self.panel
        own = self.run.problems[self.run.problems["key"].isin(panel.cots["problem_key"])]
        revisions = tuple(sorted({str(revision) for revision in own["data_revision"]}))
        return (*panel.order, panel.model_revision, revisions)

    @property
    def is_import(self) -> bool:
        """Whether the run is an import of published files, which need not hold all problems of a data set."""
        return self.run.is_imported

    @cached_property
    def health(self) -> Health:
        """Accuracy, length of CoTs and the like, with the intervals of the run's own report."""
        return panel_health(self.panel, self.run.gold, self.run.rng(self.panel.model, self.panel.data_set, "health"))

    @property
    def capability(self) -> CellCapability | None:
        """General capability at the shown rate, on the largest set of questions; None where it was not measured."""
        own = [one for one in self.capabilities if self.cell and one.cell_key == self.cell.cell_key]
        return max(own, key=lambda one: one.num_questions, default=None)

    def printed(self, table: str, measure: str, lr: float | None = None) -> str | None:
        """The paper's own figure; none for LoRA, which its tables do not have."""
        return None if self.panel.method == "lora" else published(table, self.model, self.data_set, measure, lr)

    @property
    def names(self) -> dict[str, Any]:
        """The columns that every table's rows begin with."""
        return {"run": self.run_name} | {k: v for k, v in self.panel.names.items() if k != "scope_key"}

    @property
    def base_names(self) -> dict[str, Any]:
        """The same columns for what is measured before unlearning."""
        return {name: value for name, value in self.names.items() if name not in ("method", "lora_rank")}

    @property
    def cell_names(self) -> dict[str, Any]:
        """The same columns for what is measured at the shown rate."""
        return self.names | {"lr": None if self.cell is None else self.cell.lr, "feasible": self.is_chosen}


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """What judges found in one run, at every rate."""

    run_name: str
    cells: tuple[JudgedCell, ...]


@dataclass(frozen=True, eq=False)
class PaperData:
    """The entries of all runs, in the order of runs, models and data sets as configured, and what judges found."""

    entries: tuple[Entry, ...]
    judged: tuple[JudgedRun, ...] = ()

    @cached_property
    def labels(self) -> list[str]:
        """The lines of a table, each once."""
        return list(dict.fromkeys(entry.label for entry in self.entries))

    @cached_property
    def data_sets(self) -> list[str]:
        """The data sets, each once."""
        return list(dict.fromkeys(entry.data_set for entry in self.entries))

    @cached_property
    def measured(self) -> list[Entry]:
        """The entries with at least one rate."""
        return [entry for entry in self.entries if entry.panel.cells]

    @cached_property
    def bases(self) -> list[Entry]:
        """One entry per model, data set and run: what is measured before unlearning is the same for all methods."""
        return list({(e.run_name, e.panel.scope_key): e for e in reversed(self.entries)}.values())[::-1]

    @property
    def is_empty(self) -> bool:
        """Whether no problem was asked."""
        return not self.entries


def load_paper(run_dirs: Sequence[Path]) -> PaperData:
    """Reads runs.

    Args:
        run_dirs: Run directories, each once.

    Raises:
        StoreError: A directory holds no run or cannot be read, is given twice, or holds rows of another one.
    """
    seen: set[Path] = set()
    for run_dir in run_dirs:
        if run_dir.resolve() in seen:
            raise StoreError(f"{run_dir}: is given twice; name every run once")
        seen.add(run_dir.resolve())
    names = [run_dir.resolve().name for run_dir in run_dirs]
    entries: list[Entry] = []
    judged = []
    for run_dir, name in zip(run_dirs, names, strict=True):
        parent = f"{run_dir.resolve().parent.name}/" if names.count(name) > 1 else ""
        results = Results(run_dir)
        entries += _entries(results, f"{parent}{name}")
        judged.append(JudgedRun(f"{parent}{name}", tuple(results.judged)))
    _refuse_doubles(entries)
    return PaperData(tuple(_labelled(entries)), tuple(judged))


def _entries(results: Results, run_name: str) -> list[Entry]:
    run = results.run
    problems = problems_of(run)

    def entry(panel: Panel) -> Entry:
        own = tuple(one for one in results.capabilities if one.scope_key == panel.scope_key)
        return Entry(run, run_name, panel, problems, own)

    models, data_sets = (_order(run.info[column]) for column in ("models", "data_sets"))
    panels = sorted(build_panels(run), key=lambda p: (_place(models, p.model), _place(data_sets, p.data_set)))
    return [entry(panel) for panel in panels]


def _order(named: Sequence[str] | None) -> list[str]:
    return [name.rpartition("@")[0] for name in named or ()]


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _refuse_doubles(entries: Iterable[Entry]) -> None:
    owners: dict[str, str] = {}
    for entry in entries:
        for cell in entry.panel.cells:
            other = owners.setdefault(cell.cell_key, entry.run_name)
            if other != entry.run_name:
                raise StoreError(
                    f"runs {other} and {entry.run_name} hold the same measurements ({entry.model} on "
                    f"{entry.data_set}); give one of them"
                )


def _labelled(entries: Sequence[Entry]) -> Iterator[Entry]:
    for entry in entries:
        rivals = {e.run_name for e in entries if (e.model, e.data_set) == (entry.model, entry.data_set)}
        same = {e.run_name for e in entries if _identity(e) == _identity(entry)}
        base = f"{entry.model} ({entry.run_name})" if len(rivals) > 1 else entry.model
        label = f"{entry.model} ({entry.run_name})" if len(same) > 1 else entry.model
        method = f", {entry.panel.shown_method}" if entry.panel.shown_method else ""
        yield replace(entry, label=f"{label}{method}", base_label=base)


def _identity(entry: Entry) -> tuple[str, str, str]:
    return entry.model, entry.data_set, entry.panel.shown_method
