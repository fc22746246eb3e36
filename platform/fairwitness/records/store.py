"""The result store: tables of Parquet parts that grow, survive a crash and are never written twice.

Layout: `<root>/<table>/<sha256 of the content>.parquet`. Rows are gathered in memory and written as a part every few
seconds, so a killed process loses at most those seconds and leaves nothing half-written. One process writes (see
`RunDirectory.lock`); any number may read.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairwitness.errors import StoreError
from fairwitness.records.parts import (
    check_part,
    check_table,
    check_writable,
    list_parts,
    read_pieces,
    remove_leftovers,
    rows_to_table,
    table_of,
    unreadable,
    write_part,
)
from fairwitness_schemas import TABLES, Table


def one_of(column: str, values: Iterable[str]) -> pc.Expression:
    """That a column of text holds one of some values. Without a value no row fits (pyarrow alone would fail)."""
    return pc.field(column).isin(pa.array(list(values), pa.string()))


_FINISHED_BONUS = 1 << 62


def deciding_columns(table: Table) -> list[str]:
    """The columns that `winning_rows` needs."""
    place = table.place_key or table.resume_key
    wanted = ("key", table.resume_key, place, "status", "attempt", "created_at", "finished_at")
    return [name for name in dict.fromkeys(wanted) if name in table.schema.names]


def winning_rows(table: Table, data: pa.Table) -> npt.NDArray[np.bool_] | None:
    """Marks the rows that count; None when all do.

    Per unit of work, or where the table has places per place, a finished attempt wins over an unfinished one, then the
    last attempt (for `runs` the latest time) wins. Rows of equal rank and key are equal by construction, the first is
    kept.

    `data` has the columns of `deciding_columns`, all rows.
    """
    if data.num_rows == 0:
        return None
    names = data[table.resume_key]
    places = _codes(pc.coalesce(data[table.place_key], names) if table.place_key else names)
    rank = _rank(table, data)
    best = np.full(int(places.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(best, places, rank)
    keep = rank == best[places]
    keys = _codes(data["key"]) if table.resume_key != "key" else places
    rows = np.flatnonzero(keep)
    _, first = np.unique(keys[rows], return_index=True)
    if first.size == data.num_rows:
        return None
    mask: npt.NDArray[np.bool_] = np.zeros(data.num_rows, dtype=np.bool_)
    mask[rows[first]] = True
    return mask


def finished_units(table: Table, data: pa.Table) -> list[str]:
    """The units of work that are not done again, each once."""
    if not table.finished:
        return []
    done = pc.is_in(data["status"], value_set=pa.array(table.finished))
    units: list[str] = pc.unique(data[table.resume_key].filter(done)).to_pylist()
    return units


def _rank(table: Table, data: pa.Table) -> npt.NDArray[np.int64]:
    rank = np.zeros(data.num_rows, dtype=np.int64)
    for name in ("attempt", "created_at", "finished_at"):
        if name in data.column_names:
            values = pc.fill_null(pc.cast(data[name], pa.int64()), 0)
            rank = np.maximum(rank, values.to_numpy().astype(np.int64))
    if table.finished:
        finished = pc.is_in(data["status"], value_set=pa.array(table.finished))
        rank += finished.to_numpy().astype(np.int64) * _FINISHED_BONUS
    return rank


def _codes(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A number per distinct text. The wide text type holds more than 2 GB of keys in one array."""
    encoded = values.cast(pa.large_string()).combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy()).astype(np.int64)


_log = logging.getLogger(__name__)

SMALL_PART_BYTES = 1 << 20
MAX_SMALL_PARTS = 64
MAX_READ_ATTEMPTS = 5
TIDY_BYTES = 64 << 20


class Store:
    """Tables of one run, in one folder.

    All rows of one unit of work (for `unlearning` the iterations of one task) must come in one call of `append`: they
    go into one part, so a unit is stored as a whole or not at all. Used as a context manager it writes at the end
    what it holds, also when the block ends with an error other than its own.
    """

    def __init__(
        self,
        root: Path | str,
        tables: Sequence[Table] = (),
        *,
        create: bool = True,
        flush_rows: int = 20_000,
        flush_s: float = 3.0,
    ) -> None:
        """Opens a store.

        Args:
            root: The folder; made when it is missing.
            tables: Tables besides those of `fairwitness_schemas`; one that the store holds already is known to it.
            create: False to read an existing store; then a missing folder is an error and nothing is written.
            flush_rows: Rows of a table that are held in memory at most.
            flush_s: Seconds that a row is held in memory at most, unless writing fails.

        Raises:
            StoreError: The folder is missing (`create=False`) or cannot be written.
        """
        self.root = Path(root)
        self._tables = {**TABLES, **{table.name: table for table in tables}}
        self._writable = create
        self._flush_rows, self._flush_s = flush_rows, flush_s
        self._pending: dict[str, list[pa.Table]] = {}
        self._num_pending: Counter[str] = Counter()
        self._finished: dict[str, set[str]] = {}
        self._masks: dict[str, tuple[tuple[Path, ...], npt.NDArray[np.bool_] | None]] = {}
        self._checked: set[Path] = set()
        self._written: set[str] = set()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._late_flush_failed = False
        if create:
            check_writable(self.root)
        elif not os.path.isdir(self.root):
            raise StoreError(f"{self.root}: there is no store here; give the directory of a run that was started")

    def __enter__(self) -> Self:
        """Gives the store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes what is held in memory, unless writing is what failed."""
        if not isinstance(error, StoreError):
            self.close()

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Checks rows and adds them; rows of units that are finished already are left out, with a warning.

        `rows` map column to value; columns left out are null. All rows of a unit come in one call.

        Returns:
            How many rows were added.

        Raises:
            StoreError: A row does not fit the schema (then none of them is added), or the part cannot be written.
        """
        return self._add(self._table(table), rows_to_table(self._table(table), rows)) if rows else 0

    def append_table(self, table: str, data: pa.Table) -> int:
        """As `append`, for rows that are an Arrow table with all the schema's columns. The fast way for many rows.

        Raises:
            StoreError: As for `append`.
        """
        return self._add(self._table(table), check_table(self._table(table), data))

    def flush(self) -> None:
        """Writes what is held in memory. On an error the rows stay in memory, and a later flush tries again.

        Raises:
            StoreError: A part cannot be written, for example because the disk is full.
        """
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for name in list(self._pending):
                self._write(self._table(name), self._pending[name])
                del self._pending[name], self._num_pending[name]
            self._late_flush_failed = False

    def close(self) -> None:
        """Writes what is held and tidies the tables written to: one part each, as other tools read every row.

        A large table whose rows all count is left as it is. The store can be used on.

        Raises:
            StoreError: A part cannot be written.
        """
        with self._lock:
            self.flush()
            for name in sorted(self._written):
                parts = list_parts(self.root / name)
                is_small = sum(part.stat().st_size for part in parts) < TIDY_BYTES
                if is_small or self._winning(self._table(name), parts) is not None:
                    self.compact(name)
            self._written.clear()

    def finished_keys(self, table: str) -> AbstractSet[str]:
        """Units of work that are not to be run again: `task_key` for `unlearning`, else `key`. A live view.

        Raises:
            StoreError: A part is damaged or of another version.
        """
        spec = self._table(table)
        with self._lock:
            if table not in self._finished:
                columns = [spec.resume_key, "status"]
                rows = self._with_parts(spec, lambda parts: self._scan(spec, columns, None, parts))
                self._finished[table] = set(finished_units(spec, rows))
            return self._finished[table]

    def read(self, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """The rows that count, in no particular order; of several attempts at a unit or place the last one.

        `where` is a condition such as `pc.field("status") == "ok"`, on any column; no `columns` means all.

        Raises:
            StoreError: A column is unknown, or a part is damaged or of another version.
        """
        spec = self._table(table)
        names = list(columns) if columns is not None else spec.schema.names
        unknown = [name for name in names if name not in spec.schema.names]
        if unknown:
            raise StoreError(f"table {table}: unknown columns {', '.join(unknown)}")
        with self._lock:
            self.flush()
            return self._with_parts(spec, lambda parts: self._read(spec, names, where, parts))

    def num_rows(self, table: str, where: pc.Expression | None = None) -> int:
        """How many rows count and satisfy the condition."""
        return int(self.read(table, ["key"], where).num_rows)

    def compact(self, table: str) -> None:
        """Makes one part of all parts, with only the rows that count. Needs the memory of one part at a time.

        Raises:
            StoreError: The part cannot be written; the old parts are then still there.
        """
        spec = self._table(table)
        with self._lock:
            self.flush()
            parts = list_parts(self._directory(spec))
            mask = self._winning(spec, parts)
            if len(parts) > 1 or mask is not None:
                self._replace(spec, parts, read_pieces(parts, mask))

    def _with_parts(self, table: Table, action: Callable[[tuple[Path, ...]], pa.Table]) -> pa.Table:
        """Does something with the parts, and again if a writer replaced them meanwhile."""
        for _ in range(MAX_READ_ATTEMPTS):
            parts = list_parts(self._directory(table))
            try:
                return action(parts)
            except StoreError:
                if parts == list_parts(self._directory(table)):
                    raise
        raise StoreError(f"{self._directory(table)}: is being rewritten all the time; try again later")

    def _read(self, table: Table, names: list[str], where: pc.Expression | None, parts: tuple[Path, ...]) -> pa.Table:
        mask = self._winning(table, parts)
        if mask is None:
            return self._scan(table, names, where, parts)
        selection: dict[str, pc.Expression] = {name: ds.field(name) for name in names}
        if where is not None:
            selection["__where"] = where
        rows = self._scan(table, selection, None, parts).filter(pa.array(mask))
        if where is None:
            return rows
        return rows.filter(rows["__where"]).select(names)

    def _add(self, table: Table, data: pa.Table) -> int:
        self._must_be_writable()
        with self._lock:
            if self._late_flush_failed:
                self.flush()
            fresh = self._leave_out_finished(table, data)
            if fresh.num_rows < data.num_rows:
                _log.warning("%s: %d rows of finished work ignored", table.name, data.num_rows - fresh.num_rows)
            if fresh.num_rows:
                self._pending.setdefault(table.name, []).append(fresh)
                self._num_pending[table.name] += fresh.num_rows
                self._flush_if_due(table.name)
            return int(fresh.num_rows)

    def _leave_out_finished(self, table: Table, data: pa.Table) -> pa.Table:
        if not table.finished:
            return data
        known = self.finished_keys(table.name)
        again = [unit in known for unit in data[table.resume_key].to_pylist()] if known else []
        if any(again):
            data = data.filter(pa.array([not done for done in again]))
        self._finished[table.name].update(finished_units(table, data))
        return data

    def _flush_if_due(self, name: str) -> None:
        if self._num_pending[name] >= self._flush_rows:
            self.flush()
        elif self._timer is None:
            self._timer = threading.Timer(self._flush_s, self._flush_late)
            self._timer.daemon = True
            self._timer.start()

    def _flush_late(self) -> None:
        with self._lock:
            try:
                self.flush()
            except StoreError as error:
                self._late_flush_failed = True
                _log.warning("%s", error)

    def _write(self, table: Table, pieces: Sequence[pa.Table]) -> None:
        directory = self._directory(table)
        if table.name not in self._written:
            remove_leftovers(directory)
            self._written.add(table.name)
        self._checked.add(write_part(directory, table, pieces if len(pieces) == 1 else [pa.concat_tables(pieces)]))
        small = [part for part in list_parts(directory) if part.stat().st_size < SMALL_PART_BYTES]
        if len(small) >= MAX_SMALL_PARTS:
            self._replace(table, small, read_pieces(small, None))

    def _replace(self, table: Table, parts: Sequence[Path], pieces: Iterator[pa.Table]) -> None:
        self._must_be_writable()
        merged = write_part(self._directory(table), table, pieces)
        self._checked.add(merged)
        for part in parts:
            if part != merged:
                part.unlink(missing_ok=True)

    def _winning(self, table: Table, parts: tuple[Path, ...]) -> npt.NDArray[np.bool_] | None:
        known = self._masks.get(table.name)
        if known is None or known[0] != parts:
            mask = winning_rows(table, self._scan(table, deciding_columns(table), None, parts))
            known = self._masks[table.name] = (parts, mask)
        return known[1]

    def _scan(
        self,
        table: Table,
        columns: list[str] | dict[str, pc.Expression],
        where: pc.Expression | None,
        parts: tuple[Path, ...],
    ) -> pa.Table:
        for part in parts:
            if part not in self._checked:
                check_part(part, table)
                self._checked.add(part)
        if not parts:
            empty: pa.Table = table.schema.empty_table()
            return empty.select(columns) if isinstance(columns, list) else empty
        try:
            data = ds.dataset([str(part) for part in parts], schema=table.schema)
            return data.to_table(columns=columns, filter=where)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self._directory(table), parts, error) from error

    def _directory(self, table: Table) -> Path:
        return self.root / table.name

    def _must_be_writable(self) -> None:
        if not self._writable:
            raise StoreError(f"{self.root}: was opened for reading only")

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of all tables, those of `fairwitness_schemas` first."""
        others = sorted(path.name for path in self.root.iterdir() if path.is_dir() and path.name not in self._tables)
        return *self._tables, *(name for name in others if table_of(self.root / name) is not None)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            found = table_of(self.root / name)
            if found is None:
                raise StoreError(f"there is no table {name!r}; the tables are {', '.join(self._tables)}")
            self._tables[name] = found
        return self._tables[name]
