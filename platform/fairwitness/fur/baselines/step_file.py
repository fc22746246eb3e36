"""Reads a file of changed steps: our own lines, or the published mistakes of FUR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fairwitness.config import Config, fingerprint, validate
from fairwitness.errors import ConfigError, DataError
from fairwitness.problems.readers import read_lines

PUBLISHED = {
    "id": "problem_id",
    "step_idx": "cot_step_index",
    "mistake_cot_step": "text",
    "cot_step": "original",
    "question": "question",
}
"""Fields of the published files that are read, and what they are called here."""


class StepLine(Config):
    """One line: a step in other words."""

    problem_id: str = Field(min_length=1)
    """Name of the problem."""
    cot_step_index: int = Field(ge=0)
    """Position of the step in its CoT, from 0."""
    text: str
    """The step as changed."""
    original: str | None = None
    """The step that the text stands for; where it is given, it decides which step that is."""
    question: str | None = None
    """The problem's question; names the problem where the id does not."""
    model: str | None = None
    """The model whose CoT it is; None for every model of the run."""
    data_set: str | None = None
    """The data set of the problem; None for every one of the run."""

    @field_validator("text", "original")
    @classmethod
    def _says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("is empty; write the step or remove the line")
        return value


@dataclass(frozen=True)
class Entry:
    """A line and where it is, as `file:line`."""

    where: str
    line: StepLine


@dataclass(frozen=True)
class StepFile:
    """All lines of a file, and a hash of what they say."""

    path: str
    entries: tuple[Entry, ...]
    content_hash: str


def read_step_file(path: str | Path) -> StepFile:
    """Reads a file of changed steps; empty lines are passed over.

    Raises:
        DataError: It cannot be read, holds nothing, or a line is not usable or repeats another one; names file, line
            and field.
    """
    path = Path(path).expanduser()
    entries = [
        Entry(f"{path.name}:{record.line}", _parsed(f"{path}:{record.line}", record.values))
        for record in read_lines(path)
    ]
    if not entries:
        raise DataError(f"{path}: holds no step; write one JSON object per line")
    _each_once(path, entries)
    return StepFile(str(path), tuple(entries), fingerprint([e.line.model_dump(mode="json") for e in entries]))


def _parsed(where: str, values: Mapping[str, Any]) -> StepLine:
    try:
        return validate(StepLine, _published(values) if "mistake_cot_step" in values else values, where)
    except ConfigError as error:
        raise DataError(str(error)) from error


def _published(values: Mapping[str, Any]) -> dict[str, Any]:
    return {ours: values[theirs] for theirs, ours in PUBLISHED.items() if theirs in values}


def _each_once(path: Path, entries: list[Entry]) -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for entry in entries:
        line = entry.line
        place = (line.model, line.data_set, line.problem_id, line.cot_step_index)
        if place in seen:
            raise DataError(
                f"{path.parent / entry.where}: problem_id {line.problem_id!r}, cot_step_index {line.cot_step_index} is "
                f"in {seen[place]} already; keep one of them"
            )
        seen[place] = entry.where
