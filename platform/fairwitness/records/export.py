"""Takes the tables of a run out as files for other tools, only with the rows that count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fairwitness.records.parts import unwritable
from fairwitness.records.run_dir import RunDirectory
from fairwitness_schemas import TABLES


def export(
    run_path: Path | str,
    out: Path | str,
    format: Literal["csv", "parquet"] = "csv",
    tables: Sequence[str] | None = None,
) -> list[Path]:
    """Writes `<out>/<table>.<format>` for every table that has rows. In CSV a list is JSON, a null is empty.

    Args:
        run_path: The run directory.
        out: Folder to write to; made when it is missing. Files there of the same names are replaced.
        format: csv or parquet.
        tables: Names of tables; None for all.

    Returns:
        The files written.

    Raises:
        StoreError: There is no run, a table is unknown or cannot be read, or `out` cannot be written.
    """
    store = RunDirectory.at(run_path).store(create=False)
    written = []
    for name in TABLES if tables is None else tables:
        rows = store.read(name)
        if rows.num_rows:
            path = Path(out) / f"{name}.{format}"
            _write(rows.sort_by("key"), path, format)
            written.append(path)
    return written


def _write(rows: pa.Table, path: Path, format: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if format == "parquet":
            pq.write_table(rows, path, compression="zstd")
        else:
            pyarrow.csv.write_csv(_lists_as_json(rows), path)
    except OSError as error:
        raise unwritable(path, error) from error


def _lists_as_json(rows: pa.Table) -> pa.Table:
    for index, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            texts = [None if v is None else json.dumps(v, ensure_ascii=False) for v in rows[field.name].to_pylist()]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows
