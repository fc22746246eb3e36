"""Changed steps from a file, laid on the steps of a run's CoTs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fairwitness.chains.cots import CotRecord
from fairwitness.config import Config, fingerprint, validate
from fairwitness.errors import ConfigError, DataError
from fairwitness.followups.baselines.changes import NotAltered, StepText, normal
from fairwitness.followups.baselines.config import FileTexts
from fairwitness.followups.baselines.writers import ProblemTexts, Purpose
from fairwitness.fur.study import FurStudy
from fairwitness.problems.readers import read_lines
from fairwitness.records.keys import key_of

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


class FileWriter:
    """Steps from a file.

    Attributes:
        ignored: Lines about problems that no data set of the run has, as `file:line`.
    """

    def __init__(self, config: FileTexts, studies: Sequence[FurStudy]) -> None:
        """Reads the file.

        Args:
            config: Which file.
            studies: The run's studies.

        Raises:
            DataError: See `read_step_file`; or a line is about a problem that no data set of the run has.
        """
        self.file: StepFile = read_step_file(config.path)
        self._names = {study.scope_key: _Names(study) for study in studies}
        known = self._names.values()
        self.ignored = [e.where for e in self.file.entries if not any(names.problem_id(e.line) for names in known)]
        if self.ignored and config.unknown_problems == "error":
            first = next(entry for entry in self.file.entries if entry.where == self.ignored[0])
            raise DataError(
                f"{config.path}: line {first.where.rpartition(':')[2]}: problem_id {first.line.problem_id!r} is no "
                f"problem of this run ({len(self.ignored)} such lines); mend the id, or set texts.unknown_problems: "
                "ignore"
            )

    @cached_property
    def key(self) -> str:
        """Hash of what the file says."""
        return key_of(file=self.file.content_hash)

    def write(self, study: FurStudy, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`. A line that belongs to no step of its problem's CoT is a stray.

        A line with `original` belongs to the step that says the same, white space aside: the one at its index, else
        the only one. Any other line belongs to the step at its index.
        """
        by_problem: dict[str, list[Entry]] = {}
        for entry in self.file.entries:
            problem_id = self._names[study.scope_key].problem_id(entry.line)
            if problem_id is not None:
                by_problem.setdefault(problem_id, []).append(entry)
        for record in records:
            yield _laid(record, by_problem.get(record.problem.problem_id, []), purpose)


def _laid(record: CotRecord, entries: Sequence[Entry], purpose: Purpose) -> ProblemTexts:
    texts: dict[int, StepText] = {}
    strays = []
    for entry in entries:
        index = _step_of(record, entry)
        if isinstance(index, str) or index in texts:
            reason = index if isinstance(index, str) else f"step {index} has the {purpose} of another line already"
            strays.append(
                NotAltered(
                    entry.line.cot_step_index, "failed", f"{entry.where}: {reason}", entry.line.text, entry.where
                )
            )
        else:
            texts[index] = StepText(entry.line.text, entry.where)
    return ProblemTexts(record, texts, tuple(strays))


def _step_of(record: CotRecord, entry: Entry) -> int | str:
    """Index of the step that a line belongs to, or why it belongs to none."""
    line, steps = entry.line, record.steps
    num = len(steps)
    if line.original is None:
        if line.cot_step_index < num:
            return line.cot_step_index
        return f"cot_step_index {line.cot_step_index}, but the CoT has {num} steps (0 to {num - 1})"
    same = [step.index for step in steps if normal(step.text) == normal(line.original)]
    if line.cot_step_index in same:
        return line.cot_step_index
    if len(same) == 1:
        return same[0]
    return "its original is no step of this CoT" if not same else "its original is several steps of this CoT"


class _Names:
    """Which problem of a study a line is about."""

    def __init__(self, study: FurStudy) -> None:
        self._model, self._data_set = study.facts.name, study.data.loaded.name
        problems = study.data.loaded.problems
        self._ids = {problem.problem_id for problem in problems}
        self._by_question = {problem.question: problem.problem_id for problem in problems}

    def problem_id(self, line: StepLine) -> str | None:
        if line.model not in (None, self._model) or line.data_set not in (None, self._data_set):
            return None
        if line.problem_id in self._ids:
            return line.problem_id
        return None if line.question is None else self._by_question.get(line.question)
