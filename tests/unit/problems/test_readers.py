"""Files of every format; bad records are refused with their line and the rest is read."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairwitness.errors import DataError
from fairwitness.problems.readers import find_files, read_files

ROW = {"question": "Is snow white?", "choices": ["Yes", "No"], "answer": "A"}


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def lines_of(result: object) -> list[int]:
    return [record.line for record in result.records]  # type: ignore[attr-defined]


def test_jsonl_with_bad_lines_between(tmp_path: Path) -> None:
    good = json.dumps(ROW)
    path = write(tmp_path / "set.jsonl", f"{good}\n\n{{broken\n[1, 2]\n{good}")
    result = read_files(path)
    assert lines_of(result) == [1, 5]
    assert [(item.line, item.source) for item in result.refused] == [(3, path), (4, path)]
    assert "not valid JSON" in result.refused[0].reason
    assert "JSON list, not an object" in result.refused[1].reason
    assert str(result.refused[0]).startswith(f"{path}:3 (record 2): is not valid JSON")


def test_json_lists_know_their_lines(tmp_path: Path) -> None:
    text = '[\n {"a": 1},\n\n {"a": "}]"}, {"a": 3},\n 7\n]'
    result = read_files(write(tmp_path / "set.json", text))
    assert [(record.line, record.number, record.values["a"]) for record in result.records] == [
        (2, 1, 1),
        (4, 2, "}]"),
        (4, 3, 3),
    ]
    assert [item.line for item in result.refused] == [5]


def test_the_only_list_of_a_json_object_is_taken(tmp_path: Path) -> None:
    text = '{"canary": "examples [", "meta": {"examples": 1},\n "examples": [\n{"a": 1}\n]}'
    assert lines_of(read_files(write(tmp_path / "set.json", text))) == [3]


@pytest.mark.parametrize("text", ['{"a": [1], "b": [2]}', '{"a": 1}', "7", "[{]", ""])
def test_json_without_one_list_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"set\.json"):
        read_files(write(tmp_path / "set.json", text))


def test_csv_counts_lines_inside_quotes(tmp_path: Path) -> None:
    text = 'question,answer\r\n"two\r\nlines",A\r\nshort\r\n\r\nlast,B\r\n'
    result = read_files(write(tmp_path / "set.csv", text))
    assert [(record.line, record.values["answer"]) for record in result.records] == [(2, "A"), (6, "B")]
    assert [(item.line, item.reason) for item in result.refused] == [(4, "has 1 columns, the header names 2")]


def test_csv_without_header_numbers_its_columns(tmp_path: Path) -> None:
    result = read_files(write(tmp_path / "set.csv", "q,x,y,A\n"), csv_header=False)
    assert result.records[0].values == {"0": "q", "1": "x", "2": "y", "3": "A"}


def test_csv_quote_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    result = read_files(write(tmp_path / "set.csv", 'question,answer\nfine,A\n"open,B\nlost,A\n'))
    assert lines_of(result) == [2]
    assert [item.line for item in result.refused] == [3]
    assert "not valid CSV" in result.refused[0].reason


def test_csv_quote_in_the_wrong_place_costs_one_record(tmp_path: Path) -> None:
    result = read_files(write(tmp_path / "set.csv", 'question,answer\n"a"b,A\nfine,B\n'))
    assert lines_of(result) == [3]
    assert [item.line for item in result.refused] == [2]


def test_csv_header_with_a_name_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'a' is named twice"):
        read_files(write(tmp_path / "set.csv", "a,a\n1,2\n"))


def test_tsv(tmp_path: Path) -> None:
    assert read_files(write(tmp_path / "set.tsv", "a\tb\n1,5\t2\n")).records[0].values == {"a": "1,5", "b": "2"}


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([ROW, ROW]), tmp_path / "set.parquet")
    result = read_files(str(tmp_path / "set.parquet"))
    assert [(record.line, record.values) for record in result.records] == [(1, ROW), (2, ROW)]


def test_broken_parquet_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a readable Parquet"):
        read_files(write(tmp_path / "set.parquet", b"PAR1 nothing"))


@pytest.mark.parametrize("ending", ["jsonl", "csv", "json"])
def test_bytes_that_do_not_decode_cost_one_record(tmp_path: Path, ending: str) -> None:
    texts = {
        "jsonl": '{"question": "plain"}\n{"question": "caf\xe9"}\n',
        "csv": "question,x\nplain,1\ncaf\xe9,2\n",
        "json": '[{"question": "plain"},\n{"question": "caf\xe9"}]',
    }
    path = write(tmp_path / f"set.{ending}", texts[ending].encode("cp1252"))
    result = read_files(path)
    assert [record.values["question"] for record in result.records] == ["plain"]
    assert [item.field for item in result.refused] == ["question"]
    assert "set `encoding`" in result.refused[0].reason
    assert [record.values["question"] for record in read_files(path, encoding="cp1252").records] == ["plain", "café"]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read_files(write(tmp_path / "set.csv", b"\xef\xbb\xbfa,b\n1,2\n")).records[0].values == {"a": "1", "b": "2"}


def test_folders_and_patterns_are_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        write(tmp_path / name, json.dumps({"name": name}))
    write(tmp_path / "README.md", "not data")
    for path in (str(tmp_path), str(tmp_path / "*.jsonl")):
        assert [record.values["name"] for record in read_files(path).records] == ["a.jsonl", "b.jsonl"]


def test_what_is_not_there_or_not_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^~nobody-of-this-name/x\.csv: there is no such file"):
        read_files("~nobody-of-this-name/x.csv")
    with pytest.raises(DataError, match=r"nowhere\.jsonl: there is no such file"):
        find_files(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(DataError, match="holds no file that ends in"):
        find_files(str(tmp_path))
    with pytest.raises(DataError, match=r"unknown format '\.xlsx'"):
        find_files(write(tmp_path / "set.xlsx", "x"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "set.jsonl", "{}")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"set\.jsonl: cannot be read \(Permission denied\)"):
        read_files(path)


def test_the_hash_follows_the_content_and_not_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = read_files(write(tmp_path / "set.jsonl", "{}\n")).content_hash
    assert read_files(write(tmp_path / "other" / "set.jsonl", "{}\n")).content_hash == first
    assert read_files(write(tmp_path / "set.jsonl", "{}\n{}\n")).content_hash != first
