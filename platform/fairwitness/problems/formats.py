"""One function per file format: bytes in, entries with their line numbers out."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fairwitness.errors import DataError

_BOM = "\ufeff"
_LIST_GAP = " \t\r\n,"
_KEY_GAP = " \t\r\n:"


class TextFormat(NamedTuple):
    """How the text of a file is to be taken.

    Attributes:
        encoding: Name of the encoding. Bytes that do not decode become lone surrogates, to be refused per record.
        csv_header: Whether the first line of a CSV file names its columns.
    """

    encoding: str
    csv_header: bool


class Entry(NamedTuple):
    """One record of a file, or the reason why it is none.

    Attributes:
        line: Line where it begins, from 1 (row number for Parquet).
        values: Its fields; empty when there is a fault.
        fault: Empty, or why it cannot be read.
    """

    line: int
    values: Mapping[str, Any]
    fault: str = ""


def read_jsonl(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    """One JSON object a line; blank lines are passed over."""
    for line, text in enumerate(_decode(data, form).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Entry(line, {}, f"is not valid JSON ({error})")
            continue
        yield _object_entry(line, values)


def read_json(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    """A list of JSON objects, alone or as the only list of an object.

    Raises:
        DataError: The file is not valid JSON (what follows the fault could not be told apart), or holds no list.
    """
    text = _decode(data, form)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: is not valid JSON ({error}); repair the file or give it as JSONL") from error
    lists = [name for name, value in document.items() if isinstance(value, list)] if isinstance(document, dict) else []
    if isinstance(document, list):
        position = text.index("[")
    elif len(lists) == 1:
        position = _position_of_value(text, lists[0])
    else:
        raise DataError(f"{source}: must hold a list of records, alone or as the only list of an object")
    return _items_of_list(text, position + 1)


def read_csv(source: str, data: bytes, form: TextFormat, delimiter: str = ",") -> Iterator[Entry]:
    """Comma-separated rows; without a header the columns are named 0, 1, 2 and so on.

    Raises:
        DataError: The header names a column twice.
    """
    rows = csv.reader(io.StringIO(_decode(data, form), newline=""), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Entry(line, {}, f"is not valid CSV ({error})")
            continue
        if not any(cell.strip() for cell in row):
            continue
        if form.csv_header and names is None:
            names = _header(source, row)
        elif names is not None and len(row) != len(names):
            yield Entry(line, {}, f"has {len(row)} columns, the header names {len(names)}")
        else:
            yield Entry(line, dict(zip(names or map(str, range(len(row))), row, strict=True)))


def read_tsv(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    """As `read_csv`, with tabs."""
    return read_csv(source, data, form, delimiter="\t")


def read_parquet(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    """The rows of a Parquet file.

    Raises:
        DataError: It is not a readable Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{source}: is not a readable Parquet file ({reason}); write it again") from error
    return (Entry(line, values) for line, values in enumerate(table.to_pylist(), start=1))


Reader = Callable[[str, bytes, TextFormat], Iterator[Entry]]
"""Reads a file of one format: its name (for messages), its bytes, and how its text is to be taken."""

FORMATS: Mapping[str, Reader] = MappingProxyType(
    {
        ".jsonl": read_jsonl,
        ".ndjson": read_jsonl,
        ".json": read_json,
        ".csv": read_csv,
        ".tsv": read_tsv,
        ".parquet": read_parquet,
    }
)


def _decode(data: bytes, form: TextFormat) -> str:
    return data.decode(form.encoding, errors="surrogateescape").removeprefix(_BOM)


def _header(source: str, row: list[str]) -> list[str]:
    names = [cell.strip() for cell in row]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{source}: column {twice[0]!r} is named twice in the header; rename one")
    return names


def _object_entry(line: int, values: Any) -> Entry:
    if isinstance(values, dict):
        return Entry(line, values)
    return Entry(line, {}, f"is a JSON {type(values).__name__}, not an object with fields")


def _position_of_value(text: str, key: str) -> int:
    """Where the value of a key begins in the text of an object that is known to be valid."""
    decoder = json.JSONDecoder()
    position = text.index("{") + 1
    while True:
        found, position = decoder.raw_decode(text, _skip(text, position, _LIST_GAP))
        position = _skip(text, position, _KEY_GAP)
        if found == key:
            return position
        _, position = decoder.raw_decode(text, position)


def _items_of_list(text: str, position: int) -> Iterator[Entry]:
    """Walks over a list that is known to be valid, to learn on which line each item begins."""
    decoder = json.JSONDecoder()
    line, counted = 1, 0
    while True:
        position = _skip(text, position, _LIST_GAP)
        if text[position] == "]":
            return
        line, counted = line + text.count("\n", counted, position), position
        values, position = decoder.raw_decode(text, position)
        yield _object_entry(line, values)


def _skip(text: str, position: int, chars: str) -> int:
    while text[position] in chars:
        position += 1
    return position
