"""What passes between reading, mapping and loading: records, refusals and the loaded set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairwitness.problems.problem import Problem


class Record(NamedTuple):
    """One raw record.

    Attributes:
        source: File or hub id.
        line: Line of the file where the record begins (row number for Parquet and hub), from 1.
        number: Number of the record in its source, from 1.
        values: Its fields.
    """

    source: str
    line: int
    number: int
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where it is, as `file:line (record number)`."""
        return f"{self.source}:{self.line} (record {self.number})"

    def refuse(self, field: str, reason: str) -> Refused:
        """The refusal of this record; an empty field means the record as a whole."""
        return Refused(self.source, self.line, field, reason, self.number)


@dataclass(frozen=True)
class Refused:
    """A record that was not taken: source, line and number as in `Record`, and why.

    Attributes:
        field: Name of the field at fault, empty when it is the record as a whole.
        reason: One sentence.
    """

    source: str
    line: int
    field: str
    reason: str
    number: int

    def __str__(self) -> str:
        """The refusal on one line: file, line, record, field and reason."""
        field = f" field {self.field!r}:" if self.field else ""
        return f"{self.source}:{self.line} (record {self.number}):{field} {self.reason}"


class FieldError(Exception):
    """A field of one record cannot be used; becomes a `Refused`."""

    def __init__(self, field: str, reason: str) -> None:
        """Keeps the field's name apart from the reason."""
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def refused(self, record: Record) -> Refused:
        """The refusal of the record in which it happened."""
        return record.refuse(self.field, self.reason)


class ReadResult(NamedTuple):
    """What reading a source gave.

    Attributes:
        records: The readable records, in order.
        refused: The unreadable ones.
        content_hash: Hash of all that was read; changes when any byte of a file, or any value of a hub row, does.
    """

    records: list[Record]
    refused: list[Refused]
    content_hash: str


@dataclass(frozen=True)
class LoadedProblems:
    """A data set as read.

    Attributes:
        name: Name of the data set.
        split: Its split, empty when not known.
        problems: The problems, in the order of the source.
        refused: The records that were not taken.
        data_revision: Hash of the content and of how it was read; equal revisions mean equal problems.
    """

    name: str
    split: str
    problems: tuple[Problem, ...]
    refused: tuple[Refused, ...]
    data_revision: str
