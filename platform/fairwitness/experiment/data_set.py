"""A data set as a run uses it: which problems, their keys, and their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairwitness.errors import DataError
from fairwitness.problems.config import DataConfig
from fairwitness.problems.load import Selection, load_problems, select
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems, Refused
from fairwitness.records.keys import key_of

Loader = Callable[[DataConfig, int], LoadedProblems]
"""Loads a data set that another package makes, such as the organism's world."""

Row = dict[str, Any]

NUM_NAMED = 5
"""Refused records of a data set that the terminal names one by one; all are stored."""


@dataclass(frozen=True)
class DataSet:
    """A data set as it is used in this run."""

    config: DataConfig
    loaded: LoadedProblems
    selection: Selection

    @cached_property
    def held_out_key(self) -> str:
        """Hash of the problems held out."""
        return key_of(problems=[_content(problem) for problem in self.selection.held_out])

    def problem_key(self, problem: Problem) -> str:
        """Key of a problem in the table `problems`: its content, whatever else its file holds."""
        return key_of(data_set=self.loaded.name, problem=_content(problem))


def prepare_data_sets(
    configs: Sequence[DataConfig], seed: int, loaders: Mapping[str, Loader], *, hold_out: bool = True
) -> list[DataSet]:
    """Reads data sets and draws their problems.

    `loaders` are further data sets by name; without `hold_out` no problem is held out, whatever the configuration says.

    Raises:
        ConfigError, DataError: One cannot be used, or two have the same name.
    """
    found = [_prepared(config, seed, loaders, hold_out=hold_out) for config in configs]
    names = [data.loaded.name for data in found]
    if len(set(names)) < len(names):
        raise DataError(f"data_sets: two have the same name among {', '.join(names)}; give each a `name`")
    return found


def _prepared(config: DataConfig, seed: int, loaders: Mapping[str, Loader], *, hold_out: bool) -> DataSet:
    other = loaders.get(config.data_set)
    loaded = other(config, seed) if other else load_problems(config, seed=seed, others=loaders)
    num_held_out = config.num_held_out if hold_out else 0
    return DataSet(
        config, loaded, select(loaded, num_problems=config.num_problems, num_held_out=num_held_out, seed=seed)
    )


def problem_rows(data: DataSet) -> list[Row]:
    """Rows of `problems`: the measured ones, then the refused records."""
    return [_problem_row(data, p) for p in data.selection.measured] + [
        refused_row(data.loaded.name, data.loaded.data_revision, r) for r in data.loaded.refused
    ]


def _problem_row(data: DataSet, problem: Problem) -> Row:
    return {
        "key": data.problem_key(problem),
        "data_set": data.loaded.name,
        "data_revision": data.loaded.data_revision,
        "split": problem.split,
        "problem_id": problem.problem_id,
        "question": problem.question,
        "choices": list(problem.choices),
        "gold": problem.gold,
        "metadata_json": json.dumps(dict(problem.metadata), sort_keys=True, ensure_ascii=False),
        "source": None,
        "status": "ok",
        "reason": None,
    }


def refused_row(name: str, revision: str, refused: Refused) -> Row:
    """Row of `problems` for a record that cannot be used."""
    where = f"{refused.source}:{refused.line}"
    return {
        "key": key_of(data_set=name, revision=revision, source=where, field=refused.field),
        "data_set": name,
        "data_revision": revision,
        "source": where,
        "status": "refused",
        "reason": str(refused),
    }


def refusal_lines(data_sets: Iterable[DataSet], rest: str) -> Iterator[str]:
    """Lines that name the first refused records of each data set by file, line and field.

    A data set that comes again is named once; `rest` tells a reader where the others are.
    """
    for name, refused in {data.loaded.name: data.loaded.refused for data in data_sets}.items():
        yield from (f"{name}: refused: {one}" for one in refused[:NUM_NAMED])
        if len(refused) > NUM_NAMED:
            yield f"{name}: and {len(refused) - NUM_NAMED} more refused; {rest}"


def _content(problem: Problem) -> list[object]:
    return [problem.problem_id, problem.question, list(problem.choices), problem.gold, problem.split]
