from __future__ import annotations

import csv
import json
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest

from fairwitness.errors import StoreError
from fairwitness.records.export import export
from fairwitness.records.run_dir import RunDirectory
from tests.unit.records.rows import cot_row, failed_row, task_rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = RunDirectory(tmp_path, "demo")
    with directory.store() as store:
        store.append("unlearning", [failed_row("t1")])
    with directory.store() as store:
        store.append("unlearning", task_rows("t1", attempt=2) + task_rows("t0"))
        store.append("cots", [cot_row(cot_text='a "quoted", é\nline')])
    return directory.path


def test_csv_has_the_rows_that_count_with_lists_as_json(run: Path, tmp_path: Path) -> None:
    written = export(run, tmp_path / "out")
    assert [path.name for path in written] == ["cots.csv", "unlearning.csv"]
    with written[1].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["key"] for row in rows] == ["t0/1", "t0/2", "t1/1", "t1/2"]
    assert json.loads(rows[0]["probs"]) == [0.5, 0.5]
    assert (rows[0]["efficacy"], rows[0]["flipped"], rows[0]["reason"]) == ("0.5", "false", "")
    with written[0].open(newline="") as stream:
        assert next(csv.DictReader(stream))["cot_text"] == 'a "quoted", é\nline'


def test_parquet_is_one_file_per_table(run: Path, tmp_path: Path) -> None:
    (path,) = export(run, tmp_path / "out", "parquet", ["unlearning"])
    assert pq.read_table(path)["probs"].to_pylist() == [[0.5, 0.5]] * 4


def test_datasets_load_with_a_split_per_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert export(run, out, "datasets") == [out]
    assert capsys.readouterr() == ("", "")
    loaded = datasets.load_from_disk(out)
    assert list(loaded) == ["cots", "unlearning"]
    assert loaded["unlearning"].select_columns(["key", "probs", "reason"])[:2] == {
        "key": ["t0/1", "t0/2"],
        "probs": [[0.5, 0.5]] * 2,
        "reason": [None] * 2,
    }
    # The same rows, with the same types, as Parquet gives.
    for path in export(run, tmp_path / "parquet", "parquet"):
        table = pq.read_table(path)
        assert loaded[path.stem].data.table.cast(table.schema).equals(table)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file: cannot be written"):
        export(run, tmp_path / "file", "datasets")


def test_a_folder_that_cannot_be_written_and_an_unknown_table_are_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/cots\.csv: cannot be written"):
        export(run, tmp_path / "file")
    with pytest.raises(StoreError, match="no table 'cot'"):
        export(run, tmp_path / "out", tables=["cot"])
