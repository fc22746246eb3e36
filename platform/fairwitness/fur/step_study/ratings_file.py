"""Reads files of ratings: a CSV with a line per step, from the form or filled in by hand."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairwitness.errors import DataError
from fairwitness.fur.step_study.scale import parse_rating
from fairwitness.problems.formats import Entry, TextFormat, read_csv
from fairwitness.problems.readers import read_file
from fairwitness.problems.records import Record, Refused

ITEM, RATING, RATER = "item", "rating", "rater"
SHEET_NAME = "steps.csv"
"""The exported sheet; under this name a file does not say who filled it in."""
_DELIMITERS = (",", ";", "\t")


class Rating(NamedTuple):
    """One line of a file: who rated which step how; `rating` is None where the cell is empty."""

    record: Record
    item: str
    rater: str
    rating: int | None


class RatingsFile(NamedTuple):
    """What a file holds.

    Attributes:
        ratings: Its lines, those without a rating included.
        refused: Lines that cannot be used.
        items: Names of all steps that it has a line for, refused lines included.
    """

    ratings: list[Rating]
    refused: list[Refused]
    items: frozenset[str]


def read_ratings(path: Path, *, rater: str | None = None) -> RatingsFile:
    """Reads one file. Further columns, such as the question, are passed over.

    Args:
        path: CSV with the columns `item` and `rating` and, if need be, `rater`; commas, semicolons or tabs.
        rater: Who rated, where the file does not say; without it the file's name, unless it is the sheet's.

    Raises:
        DataError: The file cannot be read, has other columns (the message says which), no line, or no rater.
    """
    found = read_file(path, _read, TextFormat("utf-8", csv_header=True))
    if found.records:
        _check_columns(path, list(found.records[0].values))
    elif not found.refused:
        raise DataError(f"{path}: holds no rating; it needs a header with {ITEM} and {RATING}, and a line per step")
    default = rater or (path.stem if path.name != SHEET_NAME else None)
    lines = [_rating(path, record, default) for record in found.records]
    faults = [line for line in lines if isinstance(line, Refused)]
    items = frozenset(map(_item, found.records)) - {""}
    return RatingsFile([line for line in lines if isinstance(line, Rating)], [*found.refused, *faults], items)


def _read(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    header = io.BytesIO(data).readline().decode(form.encoding, errors="replace")
    return read_csv(source, data, form, delimiter=max(_DELIMITERS, key=header.count))


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in (ITEM, RATING) if name not in names]
    if not missing:
        return
    if "dp" in names and "target_step_idx" in names:
        raise DataError(
            f"{path}: is a study of the published implementation, with its own steps; "
            "use fairwitness import-published for it"
        )
    raise DataError(
        f"{path}: has no column {missing[0]!r} (columns: {', '.join(names)}); ratings need {ITEM!r} and {RATING!r}, as "
        "in the exported sheet and in what the form saves"
    )


def _item(record: Record) -> str:
    return str(record.values[ITEM]).strip().casefold()


def _rating(path: Path, record: Record, default: str | None) -> Rating | Refused:
    item = _item(record)
    rater = (record.values.get(RATER) or "").strip() or default
    if rater is None:
        raise DataError(
            f"{path}: line {record.line} does not say who rated; fill in the column {RATER!r}, rename the file to the "
            "rater's name, or give --rater"
        )
    if not item:
        return record.refuse(ITEM, "is empty; it must hold the name of a step of the study")
    try:
        return Rating(record, item, rater, parse_rating(record.values[RATING]))
    except ValueError as error:
        return record.refuse(RATING, str(error))
