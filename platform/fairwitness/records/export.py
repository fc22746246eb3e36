"""Takes the tables of a run out as files for other tools, only with the rows that count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fairwitness.records.parts import unwritable
from fairwitness.records.run_dir import RunDirectory

Format = Literal["csv", "parquet", "datasets"]


def export(
    run_path: Path | str, out: Path | str, format: Format = "csv", tables: Sequence[str] | None = None
) -> list[Path]:
    """Writes every table that has rows, sorted by key.

    `csv` and `parquet` give a file `<out>/<table>.<format>` per table; in CSV a list is JSON, a null is empty.
    `datasets` makes `out` the folder of one Hugging Face `DatasetDict` with a split per table, for
    `datasets.load_from_disk(out)`.

    `out` is made when it is missing; files there of the same names are replaced. No `tables` means all.

    Returns:
        The files written; with `datasets` the folder.

    Raises:
        StoreError: There is no run, a table is unknown or cannot be read, or `out` cannot be written.
    """
    store = RunDirectory.at(run_path).store(create=False)
    read = ((name, store.read(name)) for name in (store.table_names if tables is None else tables))
    found = ((name, rows.sort_by("key")) for name, rows in read if rows.num_rows)
    if format == "datasets":
        return _write_datasets(dict(found), Path(out))
    written = []
    for name, rows in found:
        path = Path(out) / f"{name}.{format}"
        _write(rows, path, format)
        written.append(path)
    return written


def _write_datasets(tables: Mapping[str, pa.Table], out: Path) -> list[Path]:
    import datasets

    splits = datasets.DatasetDict({name: datasets.Dataset(rows) for name, rows in tables.items()})
    datasets.disable_progress_bars()
    try:
        splits.save_to_disk(out)
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        datasets.enable_progress_bars()
    return [out]


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
