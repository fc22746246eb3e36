"""Parts: the Parquet files that a table consists of. Named by their content, complete or not there at all."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairwitness.errors import StoreError
from fairwitness_schemas import Table


def rows_to_table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Turns rows into an Arrow table of exactly the table's schema. A column left out is null.

    Raises:
        StoreError: A column is unknown, of the wrong type, null where it may not be, NaN or infinite, or a status is
            not one of the table's. The message names table, column and the row's key.
    """
    columns: dict[str, list[Any]] = {name: [] for name in table.schema.names}
    for row in rows:
        if not row.keys() <= columns.keys():
            raise _unknown_column(table, row)
        for name, values in columns.items():
            values.append(row.get(name))
    arrays = [_to_array(table, field, columns[field.name], columns["key"]) for field in table.schema]
    return check_table(table, pa.Table.from_arrays(arrays, schema=table.schema))


def check_table(table: Table, data: pa.Table) -> pa.Table:
    """Checks a whole Arrow table and returns it with the columns in the schema's order.

    Raises:
        StoreError: As `rows_to_table`, except that columns may not be left out.
    """
    if set(data.column_names) != set(table.schema.names):
        differ = sorted(set(data.column_names) ^ set(table.schema.names))
        raise StoreError(f"table {table.name}: columns {', '.join(differ)} are missing or unknown")
    data = data.select(table.schema.names)
    for field in table.schema:
        _check_column(table, field, data)
    return data.replace_schema_metadata(None).cast(table.schema)


def _to_array(table: Table, field: pa.Field, values: list[Any], keys: list[Any]) -> pa.Array:
    accepts = _acceptor(field.type)
    for value, key in zip(values, keys, strict=True):
        if value is not None and not accepts(value):
            raise StoreError(
                f"table {table.name}, column {field.name}, key {key}: {_shown(value)} is not a {field.type}; "
                "nothing of this batch was stored"
            )
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise StoreError(f"table {table.name}, column {field.name}, first key {keys[0]}: {error}") from error


def _check_column(table: Table, field: pa.Field, data: pa.Table) -> None:
    values = data[field.name]
    if values.type != field.type:
        raise StoreError(f"table {table.name}, column {field.name}: holds {values.type}, must be {field.type}")
    if not field.nullable and values.null_count:
        raise _bad(table, field, data, pc.is_null(values), "is missing, but may not be null")
    if pa.types.is_floating(field.type):
        infinite = pc.invert(pc.is_finite(values))
        if pc.any(infinite).as_py():
            raise _bad(table, field, data, infinite, "is NaN or infinite; store null and a reason instead")
    if pa.types.is_list(field.type):
        _check_elements(table, field, values)
    if field.name == "status":
        unknown = pc.invert(pc.is_in(values, value_set=pa.array(table.statuses)))
        if pc.any(unknown).as_py():
            raise _bad(table, field, data, unknown, f"is not one of {', '.join(table.statuses)}")


def _check_elements(table: Table, field: pa.Field, values: pa.ChunkedArray) -> None:
    elements = pc.list_flatten(values)
    floating = pa.types.is_floating(elements.type)
    if elements.null_count or (floating and pc.any(pc.invert(pc.is_finite(elements))).as_py()):
        raise StoreError(
            f"table {table.name}, column {field.name}: a list holds null, NaN or infinity; make the whole list null"
        )


def _bad(table: Table, field: pa.Field, data: pa.Table, where: pa.ChunkedArray, what: str) -> StoreError:
    index = pc.index(where, True).as_py()
    key = data["key"][index].as_py()
    return StoreError(f"table {table.name}, column {field.name}, key {key}: {data[field.name][index].as_py()!r} {what}")


def _unknown_column(table: Table, row: Mapping[str, Any]) -> StoreError:
    name = sorted(row.keys() - set(table.schema.names))[0]
    near = difflib.get_close_matches(name, table.schema.names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return StoreError(f"table {table.name}, key {row.get('key')}: unknown column {name}{hint}")


def _acceptor(type_: pa.DataType) -> Callable[[Any], bool]:
    if pa.types.is_list(type_):
        inner = _acceptor(type_.value_type)
        return lambda value: isinstance(value, list | tuple | np.ndarray) and all(map(inner, value))
    kinds, barred = _kinds(type_)
    return lambda value: isinstance(value, kinds) and not isinstance(value, barred)


def _kinds(type_: pa.DataType) -> tuple[tuple[type, ...], tuple[type, ...]]:
    if pa.types.is_boolean(type_):
        return (bool, np.bool_), ()
    if pa.types.is_integer(type_):
        return (int, np.integer), (bool,)
    if pa.types.is_floating(type_):
        return (float, int, np.floating, np.integer), (bool,)
    if pa.types.is_timestamp(type_):
        return (datetime,), ()
    return (str,), ()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


TABLE_KEY = b"fairwitness.table"
VERSION_KEY = b"fairwitness.version"
RULES_KEY = b"fairwitness.rules"
TEMP_PREFIX = ".writing-"


def list_parts(directory: Path) -> tuple[Path, ...]:
    """The finished parts of a table, in the order of their names; empty when there is none yet."""
    return tuple(sorted(directory.glob("*.parquet"))) if directory.is_dir() else ()


def write_part(directory: Path, table: Table, pieces: Iterable[pa.Table]) -> Path:
    """Writes one part atomically: a temporary file, flushed to disk, then renamed to the hash of its bytes.

    A process that dies in between leaves a temporary file that no reader looks at. The same content written twice
    is one file.

    Raises:
        StoreError: The folder or file cannot be written, for example because the disk is full. Names the path.
    """
    temporary = directory / f"{TEMP_PREFIX}{uuid.uuid4().hex}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_parquet(temporary, table, pieces)
        with temporary.open("rb") as stream:
            digest = _digest(stream)
            os.fsync(stream.fileno())
        final = directory / f"{digest}.parquet"
        os.replace(temporary, final)
        _sync_directory(directory)
        return final
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_pieces(parts: Sequence[Path], mask: npt.NDArray[np.bool_] | None) -> Iterator[pa.Table]:
    """The rows of one part after the other; with a mask over the rows of all of them only those that it marks."""
    start = 0
    for part in parts:
        piece = pq.read_table(part)
        if mask is not None:
            keep = mask[start : start + piece.num_rows]
            start += piece.num_rows
            piece = piece.filter(pa.array(keep))
        yield piece


def remove_leftovers(directory: Path) -> None:
    """Removes temporary files of a writer that died. Call it only as the one writer of the store."""
    for path in directory.glob(f"{TEMP_PREFIX}*"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def check_part(path: Path, table: Table) -> None:
    """Checks that a file is a part of this table in the version that this code knows.

    Raises:
        StoreError: It is damaged, belongs elsewhere, or was written by an older or newer schema.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path}: cannot be read ({error}); move the file away and start the job again to redo its rows"
        ) from error
    if metadata.get(TABLE_KEY) != table.name.encode():
        raise StoreError(f"{path}: is not a part of the table {table.name}; move the file away")
    written = metadata.get(VERSION_KEY, b"")
    version = int(written) if written.isdigit() else 0
    if version != table.version:
        kind = "a newer" if version > table.version else "an older"
        raise StoreError(
            f"{path}: written with version {version} of the table {table.name}, {kind} one than the {table.version} "
            "known here; use the fairwitness that wrote it, or another output.dir or run name"
        )


def table_of(directory: Path) -> Table | None:
    """A table as its parts declare it; None where there are none that do.

    Raises:
        StoreError: A part cannot be read.
    """
    for path in sorted(directory.glob("*.parquet"))[:1]:
        try:
            schema = pq.read_schema(path)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(directory, [path], error) from error
        metadata = schema.metadata or {}
        if RULES_KEY in metadata:
            kept = json.loads(metadata[RULES_KEY])
            rules: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in kept.items()}
            plain = schema.with_metadata(None)
            return Table(metadata[TABLE_KEY].decode(), plain, version=int(metadata[VERSION_KEY]), **rules)
    return None


def unreadable(directory: Path, parts: Iterable[Path], error: Exception) -> StoreError:
    """The error for parts that could not be read together: names those whose content is not what was written."""
    damaged = []
    for part in parts:
        with contextlib.suppress(OSError), part.open("rb") as stream:
            if _digest(stream) != part.stem:
                damaged.append(part.name)
    which = f"the damaged {', '.join(damaged)}" if damaged else "the damaged file"
    return StoreError(
        f"{directory}: cannot be read ({' '.join(str(error).split())}); move {which} away and start the job again to "
        "redo its rows"
    )


def check_writable(root: Path) -> None:
    """Makes a folder where it is missing, and tries to write to it.

    Raises:
        StoreError: It cannot be written; names it.
    """
    probe = root / ".can-write"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(root, error) from error


def unwritable(path: Path, error: OSError) -> StoreError:
    """The error for a path that cannot be written: names it and says what to do."""
    return StoreError(
        f"{path}: cannot be written ({error.strerror or error}); free space or choose another output.dir, then start "
        "the same command again: what is already stored is kept and not run again"
    )


def _digest(stream: BufferedReader) -> str:
    return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_parquet(path: Path, table: Table, pieces: Iterable[pa.Table]) -> None:
    kept = {name: value for name, value in vars(table).items() if name not in ("name", "schema", "version")}
    metadata = {
        TABLE_KEY: table.name.encode(),
        VERSION_KEY: str(table.version).encode(),
        RULES_KEY: json.dumps(kept).encode(),
    }
    schema = table.schema.with_metadata(metadata)
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": _repetitive(table)}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for piece in pieces:
            writer.write_table(piece.cast(schema), row_group_size=131_072)


def _repetitive(table: Table) -> list[str]:
    unique = {"key", "cot_after_text"}
    names = [field.name for field in table.schema if pa.types.is_string(field.type) and field.name not in unique]
    lists = [f"{f.name}.list.element" for f in table.schema if f.type == pa.list_(pa.string())]
    return names + lists


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
