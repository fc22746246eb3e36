"""Which rows count when a unit of work was tried more than once. Pure: Arrow in, a mask out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairwitness_schemas import Table

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

    Args:
        table: The table that the rows are of.
        data: The columns of `deciding_columns`, all rows.
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
    """The units of work that are not done again, each once.

    Args:
        table: The table that the rows are of.
        data: The columns `status` and the table's `resume_key`.
    """
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
