"""Reads local files into raw records. A bad record is refused, the rest is still read."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fairwitness.errors import DataError
from fairwitness.problems.records import ReadResult, Record, Refused

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


_ENDINGS = ", ".join(FORMATS)


def read_files(path: str, *, encoding: str = "utf-8", csv_header: bool = True) -> ReadResult:
    """Reads a file, all known files of a folder, or all files that match a pattern, in the order of their names.

    Args:
        path: File, folder or pattern.
        encoding: Encoding of text files; a record that does not decode is refused.
        csv_header: Whether the first line of a CSV file names its columns.

    Raises:
        DataError: Nothing is there, a file has an unknown ending, or a file as a whole cannot be read.
    """
    records: list[Record] = []
    refused: list[Refused] = []
    digest = hashlib.sha256()
    for file in find_files(path):
        found = read_file(file, FORMATS[file.suffix.lower()], TextFormat(encoding, csv_header))
        digest.update(f"{file.name}:{found.content_hash};".encode())
        records += found.records
        refused += found.refused
    return ReadResult(records, refused, digest.hexdigest()[:32])


def read_file(file: Path, read: Reader, form: TextFormat) -> ReadResult:
    """Reads one file whose format is known.

    Raises:
        DataError: It cannot be read as a whole.
    """
    data = _read_bytes(file)
    records: list[Record] = []
    refused: list[Refused] = []
    for number, entry in enumerate(read(str(file), data, form), start=1):
        record = Record(str(file), entry.line, number, entry.values)
        fault = record.refuse("", entry.fault) if entry.fault else text_fault(record)
        refused.append(fault) if fault else records.append(record)
    return ReadResult(records, refused, hashlib.sha256(data).hexdigest())


def read_lines(file: Path) -> list[Record]:
    """The objects of a JSON-lines file that must be right as a whole; blank lines are passed over.

    Raises:
        DataError: It cannot be read, or a line is no JSON object; names file and line.
    """
    found = read_file(file, read_jsonl, TextFormat("utf-8", csv_header=False))
    if found.refused:
        raise DataError(f"{found.refused[0]}; mend or remove the line")
    return found.records


def find_files(path: str) -> list[Path]:
    """The files that a path, folder or pattern stands for, sorted.

    Raises:
        DataError: There is none, or one that is named has an unknown ending.
    """
    place = Path(os.path.expanduser(path))
    if place.is_dir():
        files = [file for file in sorted(place.iterdir()) if file.suffix.lower() in FORMATS and file.is_file()]
    else:
        files = [place] if place.is_file() else sorted(Path(name) for name in glob.glob(str(place)))
    if not files:
        what = f"holds no file that ends in {_ENDINGS}" if place.is_dir() else "there is no such file"
        raise DataError(f"{path}: {what}; check `path`")
    for file in files:
        if file.suffix.lower() not in FORMATS:
            raise DataError(f"{file}: unknown format {file.suffix!r}; use a file that ends in {_ENDINGS}")
    return files


def text_fault(record: Record) -> Refused | None:
    """The refusal of a record that holds text which is not Unicode (left by bytes that do not decode), else None."""
    for name, value in record.values.items():
        if not _is_unicode(name) or not _is_unicode(value):
            reason = "holds bytes that do not decode; save the file as UTF-8 or set `encoding` (for example cp1252)"
            return record.refuse(name if _is_unicode(name) else "", reason)
    return None


def _is_unicode(value: Any) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, Mapping):
        return all(_is_unicode(name) and _is_unicode(inner) for name, inner in value.items())
    return not isinstance(value, list) or all(map(_is_unicode, value))


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); check the file and its permissions") from error
