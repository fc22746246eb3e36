"""Reads published files: which kind each one is, its lines, and the lines that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairwitness.errors import DataError
from fairwitness.fur.published.lines import SHAPES, Line, ResultLine, Shape, StudyLine, parse_line
from fairwitness.fur.published.origin import Origin, named, origin_of
from fairwitness.problems.formats import TextFormat, read_csv, read_jsonl
from fairwitness.problems.readers import read_file
from fairwitness.problems.records import FieldError, Record, Refused


@dataclass(frozen=True)
class Taken:
    """One usable line and where it is from."""

    origin: Origin
    line: Line
    record: Record

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.record.source}:{self.record.line}"


@dataclass(frozen=True)
class PublishedFile:
    """What a file holds.

    Attributes:
        path: The file.
        shape: Name of its kind: results, mistakes, judgements or study.
        taken: The usable lines.
        refused: The others.
        data_set: Data set of the refused ones.
        content_hash: Hash of its bytes.
    """

    path: Path
    shape: str
    taken: tuple[Taken, ...]
    refused: tuple[Refused, ...]
    data_set: str
    content_hash: str


def read_published(
    path: Path, *, model: str | None = None, data_set: str | None = None, lr: float | None = None
) -> PublishedFile:
    """Reads one file. A line that cannot be used is refused with file, line and field.

    Args:
        path: JSON lines, or CSV for the study.
        model: See `origin_of`.
        data_set: See `origin_of`.
        lr: See `origin_of`.

    Raises:
        DataError: It cannot be read, is of a kind or version that is not known, holds no usable line, or its name does
            not tell where it is from.
    """
    found = read_file(path, read_csv if path.suffix == ".csv" else read_jsonl, TextFormat("utf-8", csv_header=True))
    shape = _shape(path, found.records, found.refused)
    origin = None if shape.line is StudyLine else origin_of(path, model=model, data_set=data_set, lr=lr)
    if shape.line is ResultLine and origin and origin.lr is None:
        raise DataError(f"{path}: the name tells no learning rate; give it with --lr")
    taken: list[Taken] = []
    refused = list(found.refused)
    for record in found.records:
        try:
            line = parse_line(shape, record.values)
        except FieldError as error:
            refused.append(error.refused(record))
        else:
            taken.append(Taken(origin or _study_origin(line), line, record))
    if not taken:
        raise DataError(f"{path}: no line can be read as {shape.name}; another version? The first fault: {refused[0]}")
    refused.sort(key=lambda fault: fault.line)
    where = origin.data_set if origin else taken[0].origin.data_set
    return PublishedFile(path, shape.name, tuple(taken), tuple(refused), where, found.content_hash)


def _study_origin(line: Line) -> Origin:
    assert isinstance(line, StudyLine)
    return named(line.model, line.dataset)


def _shape(path: Path, records: Sequence[Record], refused: Sequence[Refused]) -> Shape:
    fitting = [(sum(set(shape.marks) <= set(record.values) for record in records), shape) for shape in SHAPES]
    most, shape = max(fitting, key=lambda pair: pair[0])
    if most:
        return shape
    kinds = "; ".join(f"{one.name} ({', '.join(one.marks)})" for one in SHAPES)
    if records:
        fields = ", ".join(list(records[0].values)[:12])
        raise DataError(
            f"{path}: is no published file of a version known here: it has the fields {fields}; known: {kinds}"
        )
    raise DataError(f"{path}: {refused[0] if refused else 'is empty'}; known are files of {kinds}")
