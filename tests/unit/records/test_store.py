from __future__ import annotations

import hashlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fairwitness.errors import StoreError
from fairwitness.records import parts, store
from fairwitness.records.store import Store
from tests.unit.records.rows import cot_row, failed_row, run_row, task_rows, unlearning_row


def keys(table: pa.Table) -> list[str]:
    return sorted(table["key"].to_pylist())


def part_names(root: Path, table: str = "unlearning") -> list[str]:
    return sorted(path.name for path in (root / table).iterdir())


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = task_rows("t0") + task_rows("t1")
    with Store(tmp_path) as writer:
        assert writer.append("unlearning", rows) == 4
    read = Store(tmp_path, create=False).read("unlearning").to_pylist()
    assert [{name: value for name, value in row.items() if value is not None} for row in read] == rows


def test_a_part_is_named_by_its_content_and_equal_content_is_one_part(tmp_path: Path) -> None:
    for _ in range(2):
        with Store(tmp_path) as writer:
            writer.append("runs", [run_row()])
    (name,) = part_names(tmp_path, "runs")
    assert name == hashlib.sha256((tmp_path / "runs" / name).read_bytes()).hexdigest() + ".parquet"


def test_duckdb_and_pandas_read_the_files_without_our_code(tmp_path: Path) -> None:
    with Store(tmp_path) as writer:
        writer.append("unlearning", task_rows("t0", efficacy=0.25) + task_rows("t1", efficacy=0.75))
    query = (
        f"SELECT cell_key, avg(efficacy), count(*), max(len(probs)) FROM '{tmp_path}/unlearning/*.parquet' GROUP BY 1"
    )
    assert duckdb.sql(query).fetchall() == [("c0", 0.5, 4, 2)]
    frame = pd.read_parquet(tmp_path / "unlearning")
    assert frame["efficacy"].tolist() == [0.25, 0.25, 0.75, 0.75]


def test_finished_keys_are_units_of_work_that_are_done(tmp_path: Path) -> None:
    skipped = failed_row("t2") | {"status": "skipped", "reason": "one content word"}
    with Store(tmp_path) as writer:
        writer.append("unlearning", [*task_rows("t0"), failed_row("t1"), skipped])
        writer.append("cots", [cot_row("c0"), cot_row("c1", status="failed", reason="oom")])
        writer.append("runs", [run_row(status="done")])
    again = Store(tmp_path)
    assert set(again.finished_keys("unlearning")) == {"t0", "t2"}
    assert set(again.finished_keys("cots")) == {"c0"}
    assert set(again.finished_keys("runs")) == set()
    assert set(again.finished_keys("problems")) == set()


@pytest.mark.parametrize("reopen", [True, False])
def test_a_finished_unit_is_never_stored_twice(tmp_path: Path, reopen: bool, caplog: pytest.LogCaptureFixture) -> None:
    writer = Store(tmp_path)
    writer.append("unlearning", task_rows("t0"))
    if reopen:
        writer.close()
        writer = Store(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert writer.append("unlearning", task_rows("t0", efficacy=0.1, worker="w9") + task_rows("t1")) == 2
    assert "2 rows of finished work ignored" in caplog.text
    rows = writer.read("unlearning")
    assert keys(rows) == ["t0/1", "t0/2", "t1/1", "t1/2"]
    assert set(rows["worker"].to_pylist()) == {"w0"}
    writer.close()


def test_the_last_attempt_counts_and_an_old_failure_is_gone(tmp_path: Path) -> None:
    for rows in ([failed_row("t0", attempt=1)], [failed_row("t0", attempt=2)], task_rows("t0", attempt=3)):
        with Store(tmp_path) as writer:
            assert writer.append("unlearning", rows) == len(rows)
    reader = Store(tmp_path, create=False)
    assert keys(reader.read("unlearning")) == ["t0/1", "t0/2"]
    assert reader.num_rows("unlearning", pc.field("status") == "failed") == 0
    assert reader.read("unlearning", ["key"], pc.field("iteration") == 2).to_pylist() == [{"key": "t0/2"}]


def test_a_finished_attempt_counts_more_than_a_failed_one_with_a_higher_number(tmp_path: Path) -> None:
    for rows in ([failed_row("t0", attempt=5)], task_rows("t0", attempt=1)):
        with Store(tmp_path) as writer:
            writer.append("unlearning", rows)
    assert keys(Store(tmp_path).read("unlearning")) == ["t0/1", "t0/2"]


def test_of_the_tasks_at_one_place_the_last_finished_one_counts(tmp_path: Path) -> None:
    old, new = (task_rows(name, place_key="place", attempt=n) for n, name in enumerate(("t0", "t1"), start=1))
    elsewhere = task_rows("t2", place_key="elsewhere") + task_rows("t3") + task_rows("t4")
    failed = failed_row("t5", attempt=3) | {"place_key": "place"}
    for rows in (old + elsewhere, [failed_row("t1", attempt=2) | {"place_key": "place"}], new, [failed]):
        with Store(tmp_path) as writer:
            assert writer.append("unlearning", rows) == len(rows)
    others = [f"{task}/{iteration}" for task in ("t2", "t3", "t4") for iteration in (1, 2)]
    reader = Store(tmp_path, create=False)
    assert keys(reader.read("unlearning")) == ["t1/1", "t1/2", *others]
    # As long as the new one is not there, the old one counts.
    with Store(tmp_path / "before") as writer:
        writer.append("unlearning", [*old, failed])
        assert keys(writer.read("unlearning")) == ["t0/1", "t0/2"]


def test_the_same_rows_in_two_parts_count_once(tmp_path: Path) -> None:
    """As after a driver that was killed between writing a merged part and removing the old ones."""
    with Store(tmp_path) as writer:
        writer.append("unlearning", task_rows("t0"))
    with Store(tmp_path / "other") as writer:
        writer.append("unlearning", task_rows("t0") + task_rows("t1"))
    for part in (tmp_path / "other" / "unlearning").iterdir():
        part.rename(tmp_path / "unlearning" / part.name)
    reader = Store(tmp_path)
    assert len(part_names(tmp_path)) == 2
    assert keys(reader.read("unlearning")) == ["t0/1", "t0/2", "t1/1", "t1/2"]
    reader.compact("unlearning")
    assert len(part_names(tmp_path)) == 1
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/unlearning/*.parquet'").fetchall() == [(4,)]


def test_the_later_row_of_a_run_counts(tmp_path: Path) -> None:
    later = {"finished_at": datetime(2026, 1, 2, tzinfo=UTC), "exit_code": 0}
    with Store(tmp_path) as writer:
        writer.append("runs", [run_row(status="done", **later), run_row("run1")])
        writer.append("runs", [run_row()])
    rows = {row["key"]: row["status"] for row in Store(tmp_path).read("runs").to_pylist()}
    assert rows == {"run0": "done", "run1": "running"}


def test_small_parts_are_merged_as_they_come(tmp_path: Path) -> None:
    writer = Store(tmp_path, flush_rows=1)
    for number in range(store.MAX_SMALL_PARTS + 3):
        writer.append("unlearning", task_rows(f"t{number}"))
    assert len(part_names(tmp_path)) == 4
    assert writer.num_rows("unlearning") == 2 * (store.MAX_SMALL_PARTS + 3)


def test_rows_are_on_disk_after_a_few_seconds_without_another_call(tmp_path: Path) -> None:
    writer = Store(tmp_path, flush_s=0.05)
    writer.append("unlearning", task_rows("t0"))
    assert not (tmp_path / "unlearning").exists()
    deadline_s = time.monotonic() + 10
    while not Store(tmp_path, create=False).num_rows("unlearning") and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert part_names(tmp_path)


def test_append_table_checks_and_stores_like_append(tmp_path: Path) -> None:
    with Store(tmp_path / "rows") as writer:
        writer.append("unlearning", task_rows("t0"))
        rows = writer.read("unlearning")
    with Store(tmp_path / "table") as writer:
        shuffled = rows.select(list(reversed(rows.column_names)))
        assert writer.append_table("unlearning", shuffled) == 2
        assert writer.append_table("unlearning", rows) == 0
        with pytest.raises(StoreError, match="efficacy"):
            writer.append_table("unlearning", rows.drop(["efficacy"]))
        with pytest.raises(StoreError, match="attempt: holds int64, must be int32"):
            writer.append_table("unlearning", rows.set_column(4, "attempt", pa.array([1, 2])))
    assert part_names(tmp_path / "rows") == part_names(tmp_path / "table")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iteration": 1.5}, r"table unlearning, column iteration, key t0/1: 1.5 is not a int32"),
        ({"iteration": True}, r"column iteration, key t0/1: True is not a int32"),
        ({"iteration": 2**40}, r"column iteration"),
        ({"lr": "2e-5"}, r"column lr, key t0/1: '2e-5' is not a double"),
        ({"flipped": 1}, r"column flipped, key t0/1: 1 is not a bool"),
        ({"held_out_letters": "AB"}, r"column held_out_letters"),
        ({"cot_after_ids": [1, 2.5]}, r"column cot_after_ids"),
        ({"probs": [0.5, None]}, r"column probs"),
        ({"probs": [0.5, float("nan")]}, r"column probs: a list holds null, NaN or infinity"),
        ({"efficacy": float("nan")}, r"column efficacy, key t0/1: nan is NaN or infinite; store null"),
        ({"loss": float("inf")}, r"column loss, key t0/1: inf is NaN or infinite"),
        ({"task_key": None}, r"column task_key, key t0/1: None is missing"),
        ({"status": "fine"}, r"column status, key t0/1: 'fine' is not one of ok, skipped, failed"),
        ({"eficacy": 0.5}, r"key t0/1: unknown column eficacy; did you mean efficacy\?"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_stored(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with Store(tmp_path) as writer:
        with pytest.raises(StoreError, match=message):
            writer.append("unlearning", [unlearning_row("t9"), unlearning_row("t0") | change])
        assert writer.num_rows("unlearning") == 0
        assert not writer.finished_keys("unlearning")


def test_unknown_tables_and_columns_are_named(tmp_path: Path) -> None:
    writer = Store(tmp_path)
    with pytest.raises(StoreError, match="no table 'unlearn'; the tables are problems, cots"):
        writer.append("unlearn", [{}])
    with pytest.raises(StoreError, match="table cots: unknown columns colour"):
        writer.read("cots", ["key", "colour"])


def test_an_empty_table_reads_as_no_rows(tmp_path: Path) -> None:
    writer = Store(tmp_path)
    assert writer.append("cots", []) == 0
    assert writer.read("cots").num_rows == 0
    assert writer.read("cots", ["agree"]).column_names == ["agree"]
    writer.compact("cots")
    assert not (tmp_path / "cots").exists()


def test_reading_a_store_that_is_not_there_or_writing_one_opened_for_reading(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        Store(tmp_path / "none", create=False)
    with pytest.raises(StoreError, match="opened for reading only"):
        Store(tmp_path, create=False).append("runs", [run_row()])


@pytest.mark.parametrize(("written", "kind"), [(3, "a newer"), (0, "an older")])
def test_another_version_is_refused_with_what_to_do(tmp_path: Path, written: int, kind: str) -> None:
    with Store(tmp_path) as writer:
        writer.append("runs", [run_row()])
    (path,) = (tmp_path / "runs").iterdir()
    rows = pq.read_table(path)
    metadata = dict(rows.schema.metadata) | {b"fairwitness.version": str(written).encode()}
    pq.write_table(rows.replace_schema_metadata(metadata), path)
    with pytest.raises(StoreError, match=f"version {written} of the table runs, {kind} one than the 2 known here; use"):
        Store(tmp_path).read("runs")


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    with Store(tmp_path) as writer:
        writer.append("unlearning", task_rows())
    (path,) = (tmp_path / "unlearning").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=rf"{path.name}: cannot be read .* move the file away"):
        Store(tmp_path).finished_keys("unlearning")
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StoreError, match="is not a part of the table unlearning"):
        Store(tmp_path).read("unlearning")


def test_a_part_whose_content_was_damaged_is_named_among_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for task in ("t0", "t1"):
        store.append("unlearning", task_rows(task))
        store.flush()
    part = sorted((tmp_path / "unlearning").iterdir())[1]
    content = bytearray(part.read_bytes())
    content[4:200] = bytes(byte ^ 0x5A for byte in content[4:200])
    part.write_bytes(content)
    with pytest.raises(StoreError, match=rf"unlearning: cannot be read .* move the damaged {part.name} away and start"):
        Store(tmp_path).read("unlearning")


def test_a_version_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as writer:
        writer.append("runs", [run_row()])
    (path,) = (tmp_path / "runs").iterdir()
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata(dict(rows.schema.metadata) | {b"fairwitness.version": b"x"}), path)
    with pytest.raises(StoreError, match="written with version 0 of the table runs"):
        Store(tmp_path).read("runs")


def test_a_folder_that_cannot_be_made_is_an_error_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"file/store: cannot be written .*choose another output.dir"):
        Store(tmp_path / "file" / "store")


def test_a_full_disk_is_an_error_that_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Store(tmp_path)
    writer.append("unlearning", task_rows("t0"))
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(parts.os, "replace", _no_space)
        writer.append("unlearning", task_rows("t1"))
        with pytest.raises(StoreError, match=r"unlearning: cannot be written \(No space left on device\); free space"):
            writer.flush()
        assert [name for name in part_names(tmp_path) if not name.endswith(".parquet")] == []
        assert Store(tmp_path, create=False).num_rows("unlearning") == 2
    writer.close()
    assert Store(tmp_path, create=False).num_rows("unlearning") == 4


def test_a_write_that_the_system_cuts_short_leaves_no_part(tmp_path: Path) -> None:
    """A real failure in the middle of a file, as on a full disk: the system allows files of 2 kB."""
    writer = Store(tmp_path)
    writer.append("unlearning", task_rows("t0"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(StoreError, match=r"unlearning: cannot be written \(.*File too large.*\); free space"):
            writer.flush()
        assert part_names(tmp_path) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.close()
    assert keys(Store(tmp_path).read("unlearning")) == ["t0/1", "t0/2"]


def test_a_full_disk_met_by_the_timer_is_raised_at_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Store(tmp_path, flush_s=0.01)
    monkeypatch.setattr(parts.os, "replace", _no_space)
    writer.append("unlearning", task_rows("t0"))
    deadline_s = time.monotonic() + 10
    while "No space left" not in caplog.text and time.monotonic() < deadline_s:
        time.sleep(0.01)
    with pytest.raises(StoreError, match="No space left"):
        writer.append("unlearning", task_rows("t1"))
    monkeypatch.undo()
    writer.close()
    assert keys(writer.read("unlearning")) == ["t0/1", "t0/2"]


def test_the_store_writes_what_it_holds_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Store(tmp_path) as writer:  # noqa: PT012
        writer.append("unlearning", task_rows("t0"))
        raise KeyboardInterrupt
    assert Store(tmp_path).num_rows("unlearning") == 2


def test_a_temporary_file_of_a_dead_writer_is_never_read_and_removed_by_the_next(tmp_path: Path) -> None:
    with Store(tmp_path) as writer:
        writer.append("unlearning", task_rows("t0"))
    leftover = tmp_path / "unlearning" / f"{parts.TEMP_PREFIX}123"
    leftover.write_bytes(b"half a part")
    assert Store(tmp_path, create=False).num_rows("unlearning") == 2
    assert leftover.exists()
    with Store(tmp_path) as writer:
        writer.append("unlearning", task_rows("t1"))
    assert not leftover.exists()


KILLED_WRITER = """
import os, sys
sys.path[:0] = sys.argv[2:]
from fairwitness.records import parts
from fairwitness.records.store import Store
from tests.unit.records.rows import task_rows
writer = Store(sys.argv[1])
writer.append("unlearning", task_rows("t0"))
writer.flush()
parts.os.replace = lambda *paths: os.kill(os.getpid(), 9)
writer.append("unlearning", task_rows("t1"))
writer.flush()
"""


def test_a_driver_killed_between_write_and_rename_loses_only_that_part(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_WRITER, str(tmp_path), *sys.path]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    assert len(part_names(tmp_path)) == 2
    with Store(tmp_path) as writer:
        assert set(writer.finished_keys("unlearning")) == {"t0"}
        assert writer.append("unlearning", task_rows("t0") + task_rows("t1")) == 2
    assert keys(Store(tmp_path).read("unlearning")) == ["t0/1", "t0/2", "t1/1", "t1/2"]
    assert all(name.endswith(".parquet") for name in part_names(tmp_path))


KILLED_TIDYING = """
import os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from fairwitness.records.store import Store
from tests.unit.records.rows import failed_row, task_rows
writer = Store(sys.argv[1], flush_rows=1)
for rows in ([failed_row("t0")], task_rows("t0", attempt=2), task_rows("t1")):
    writer.append("unlearning", rows)
unlink, num_removed = Path.unlink, 0
def unlink_then_die(path, missing_ok=False):
    global num_removed
    if path.suffix == ".parquet":
        num_removed += 1
        if num_removed == 2:
            os.kill(os.getpid(), 9)
    unlink(path, missing_ok)
Path.unlink = unlink_then_die
writer.close()
"""


def test_a_driver_killed_while_parts_are_merged_loses_and_doubles_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_TIDYING, str(tmp_path), *sys.path]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    assert len(part_names(tmp_path)) == 3
    reader = Store(tmp_path, create=False)
    assert keys(reader.read("unlearning")) == ["t0/1", "t0/2", "t1/1", "t1/2"]
    assert set(reader.finished_keys("unlearning")) == {"t0", "t1"}


def test_after_close_other_tools_see_exactly_the_rows_that_count(tmp_path: Path) -> None:
    with Store(tmp_path, flush_rows=1) as writer:
        writer.append("unlearning", [failed_row("t0")])
        writer.append("unlearning", task_rows("t0", attempt=2))
        writer.append("runs", [run_row()])
        writer.append("runs", [run_row(status="done", finished_at=datetime(2026, 1, 2, tzinfo=UTC))])
        assert len(part_names(tmp_path)) == 2
    assert len(part_names(tmp_path)) == 1
    tasks = duckdb.sql(f"SELECT key, status FROM '{tmp_path}/unlearning/*.parquet' ORDER BY 1").fetchall()
    assert tasks == [("t0/1", "ok"), ("t0/2", "ok")]
    assert duckdb.sql(f"SELECT status FROM '{tmp_path}/runs/*.parquet'").fetchall() == [("done",)]


def test_a_reader_survives_parts_that_are_merged_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Store(tmp_path, flush_rows=1)
    for task in ("t0", "t1"):
        writer.append("unlearning", task_rows(task))
    reader = Store(tmp_path, create=False)
    listed = store.list_parts
    stale = [listed(tmp_path / "unlearning")]
    writer.compact("unlearning")
    monkeypatch.setattr(store, "list_parts", lambda directory: stale.pop() if stale else listed(directory))
    assert reader.num_rows("unlearning") == 4
    assert not stale


def _no_space(*_: object) -> None:
    raise OSError(28, os.strerror(28))
