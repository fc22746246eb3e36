"""Ratings come back: words and numbers, several raters; what is wrong is named by file and line, the rest is kept."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from fairwitness.analysis.ratings import LABELS, PAPER_COUNTS, parse_rating
from fairwitness.errors import DataError, StoreError
from fairwitness.raters.export import export_study
from fairwitness.raters.ratings import Imported, StudyImportConfig, import_ratings, read_ratings
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from tests.unit.report.conftest import write_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path, num_problems=12)


@pytest.fixture
def items(run_dir: Path, tmp_path: Path) -> list[str]:
    key = export_study(run_dir, tmp_path / "out", PAPER_COUNTS).key
    return [row["item"] for row in csv.DictReader(io.StringIO(key.read_text(), newline=""))]


def take(run_dir: Path, *files: Path, rater: str | None = None) -> Imported:
    return import_ratings(StudyImportConfig(run=str(run_dir), files=tuple(map(str, files)), rater=rater))


def write(path: Path, *lines: str, header: str = "item,rating") -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def stored(run_dir: Path) -> dict[tuple[str, str], dict]:
    rows = Store(run_dir / "store", create=False).read("ratings").to_pylist()
    return {(row["item_key"], row["rater"]): row for row in rows}


@pytest.mark.parametrize("value", LABELS)
def test_ratings_are_numbers_or_words(value: int) -> None:
    words = LABELS[value]
    for text in (str(value), f" {value}.0 ", words, words.upper(), words.replace(" supportive", ""), f"{words}."):
        assert parse_rating(text) == value
    assert parse_rating("   ") is None


@pytest.mark.parametrize("text", ["0", "6", "-1", "3.5", "55", "very", "4 fully", "yes", "supportive", "nan"])
def test_what_is_no_rating(text: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 5 or Fully supportive"):
        parse_rating(text)


def test_several_raters_in_several_files(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    first = write(tmp_path / "ann.csv", f"{items[0]},5", f"{items[1].upper()},Not supportive at all", f"{items[2]},")
    second = write(tmp_path / "both.csv", f"{items[0]};2;Bo", f"{items[0]};3;Cy", header="item;rating;rater")
    found = take(run_dir, first, second)
    assert (found.num_new, found.num_without, found.refused) == (4, 1, ())
    assert found.raters == {"ann": 2, "Bo": 1, "Cy": 1}
    rows = stored(run_dir)
    assert {place: row["rating"] for place, row in rows.items()} == {
        (items[0], "ann"): 5, (items[1], "ann"): 1, (items[0], "Bo"): 2, (items[0], "Cy"): 3,
    }  # fmt: skip
    assert rows[items[0], "Bo"]["source"] == f"{second}:2"


def test_a_rating_stands_beside_what_was_measured(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    take(run_dir, write(tmp_path / "ann.csv", *(f"{item},4" for item in items)))
    key = (tmp_path / "out" / "for_the_researcher" / "key.csv").read_text()
    for row in csv.DictReader(io.StringIO(key, newline="")):
        found = stored(run_dir)[row["item"], "ann"]
        for name in ("model", "data_set", "problem_id", "cell_key", "bin"):
            assert found[name] == row[name]
        assert found["cot_step_index"] == int(row["cot_step_index"])
        assert found["ff_soft"] == pytest.approx(float(row["ff_soft"]), abs=1e-12)


def test_bad_lines_are_named_and_the_rest_is_taken(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    path = write(
        tmp_path / "ann.csv",
        f"{items[0]},5", "zzzzzzzzzz,3", f"{items[1]},6", f"{items[0]},4", f"{items[2]},good", ",4",
        f"{items[3]},2,x", f"{items[4]},slightly",
    )  # fmt: skip
    found = take(run_dir, path)
    assert found.num_new == 2
    assert {place[0]: row["rating"] for place, row in stored(run_dir).items()} == {items[0]: 5, items[4]: 2}
    lines = [str(fault) for fault in found.refused]
    assert [line.partition(" ")[0] for line in lines] == [f"{path}:{number}" for number in (3, 4, 5, 6, 7, 8)]
    assert "'zzzzzzzzzz' is no step of this run" in lines[0]
    assert "'6' is no rating; use 1 to 5" in lines[1]
    assert f"ann rates {items[0]} twice; {path}:2 counts" in lines[2]
    assert "'good' is no rating" in lines[3]
    assert "field 'item': is empty" in lines[4]
    assert "has 3 columns, the header names 2" in lines[5]


def test_steps_without_a_rating_are_counted_not_lines(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    # Rated by one of two; left empty by both; refused for its rating; refused beside a good rating; no step of the run.
    ann = write(tmp_path / "ann.csv", f"{items[0]},", f"{items[1]},", f"{items[2]},9", f"{items[3]},4", "zzzzzzzzzz,3")
    bo = write(tmp_path / "bo.csv", f"{items[0]},5", f"{items[1]},", f"{items[3]},9")
    found = take(run_dir, ann, bo)
    assert (found.num_new, found.num_without, len(found.refused), found.exit_code) == (2, 2, 3, 1)
    later = take(run_dir, write(tmp_path / "cy.csv", f"{items[0]},", f"{items[1]},2"))
    assert (later.num_new, later.num_without, later.exit_code) == (1, 0, 0)


def test_an_import_does_not_say_that_it_goes_on(
    run_dir: Path, items: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "fairwitness"):
        for number in (0, 1):
            take(run_dir, write(tmp_path / "ann.csv", f"{items[number]},5"))
    assert caplog.text == ""


def test_doing_it_twice_changes_nothing_and_another_opinion_is_refused(
    run_dir: Path, items: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "ann.csv", f"{items[0]},5", f"{items[1]},3")
    take(run_dir, path)
    before = stored(run_dir)
    again = take(run_dir, path)
    assert (again.num_new, again.num_known, again.refused) == (0, 2, ())
    changed = take(run_dir, write(tmp_path / "later.csv", f"{items[0]},1", f"{items[2]},1"), rater="ann")
    assert changed.num_new == 1
    (fault,) = changed.refused
    assert f"ann rated it 5 before ({path}:2); that counts" in str(fault)
    assert {place: stored(run_dir)[place] for place in before} == before


def test_the_import_is_recorded_and_the_sweep_stays_the_runs_job(
    run_dir: Path, items: list[str], tmp_path: Path
) -> None:
    take(run_dir, write(tmp_path / "ann.csv", f"{items[0]},5", "zzzzzzzzzz,3"))
    rows = Store(run_dir / "store", create=False).read("runs").to_pylist()
    (row,) = [row for row in rows if row["job"] == "study_import"]
    assert (row["status"], row["num_ok"], row["num_refused"], row["exit_code"]) == ("done", 1, 1, 1)
    assert "zzzzzzzzzz" in json.loads(row["health_json"])["refused lines"][0]
    assert (run_dir / "config.study_import.yaml").exists()
    assert not (run_dir / "config.yaml").exists()


def test_files_that_cannot_be_read(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    good = write(tmp_path / "ann.csv", f"{items[0]},5")
    bad = {
        "cannot be read": tmp_path / "absent.csv",
        "no column 'rating'": write(tmp_path / "a.csv", "x,1", header="item,score"),
        "use fairwitness import-published": write(
            tmp_path / "b.csv", "1,0,0.5,1", header="ID,target_step_idx,dp,rating"
        ),
        "holds no rating": write(tmp_path / "c.csv"),
        "does not say who rated": write(tmp_path / "steps.csv", f"{items[0]},5"),
    }
    for message, path in bad.items():
        with pytest.raises(DataError) as raised:
            take(run_dir, good, path)
        assert str(raised.value).startswith(str(path))
        assert message in str(raised.value)
    with pytest.raises(DataError, match="none of the 1 lines is of a step of this run"):
        take(run_dir, write(tmp_path / "d.csv", "zzzzzzzzzz,5"))
    with pytest.raises(DataError, match=r"no line can be read; the first fault: .*d\.csv:2 .*'9' is no rating"):
        take(run_dir, write(tmp_path / "d.csv", f"{items[0]},9"))
    assert stored(run_dir) == {}


def test_bytes_that_are_no_text_and_a_rater_given(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_bytes("item,rating,rater\r\nbcd,4,Zoë\r\nbcf,2,Ann\r\n".encode("cp1252"))
    found = read_ratings(path, rater="someone")
    assert [(one.item, one.rater) for one in found.ratings] == [("bcf", "Ann")]
    assert "holds bytes that do not decode" in str(found.refused[0])
    assert read_ratings(write(path, "bcd,4"), rater="someone").ratings[0].rater == "someone"


def test_while_another_job_writes(run_dir: Path, items: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "ann.csv", f"{items[0]},5")
    with RunDirectory.at(run_dir).lock(), pytest.raises(StoreError, match="another job writes this run"):
        take(run_dir, path)
    with pytest.raises(StoreError, match="there is no run here"):
        take(tmp_path / "absent", path)
