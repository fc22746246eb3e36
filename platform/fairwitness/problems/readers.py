"""Reads local files into raw records. A bad record is refused, the rest is still read."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairwitness.errors import DataError
from fairwitness.problems.formats import FORMATS, Reader, TextFormat, read_jsonl
from fairwitness.problems.records import ReadResult, Record, Refused

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
