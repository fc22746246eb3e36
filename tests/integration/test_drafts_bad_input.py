"""What a user gets for draft files and settings that are wrong: one clear message, or rows while the rest goes on.

- a line that cannot be used: test_bad_lines_are_named_and_the_rest_is_measured
- empty, missing or unreadable files, files for other problems: test_files_that_are_refused
- one id in two data sets: test_an_id_of_two_data_sets
- judge or writer without key or chat template: test_judges_that_cannot_be_asked
- texts, tags and contexts: test_drafts_texts.py, test_drafts_tags.py
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.analysis.draft_figures import load_draft_run
from tests.helpers.commands import Command, process_settings_restored
from tests.helpers.drafts import DRAFT, draft_settings, run_plain, write_drafts
from tests.helpers.sweeps import problem, rows_of, write_problems

NUM_PROBLEMS = 7


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    with process_settings_restored():
        yield Command(tmp_path, capsys, "draft_faithfulness")


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    data = write_problems(tmp_path / "animals.jsonl", [problem(number) for number in range(NUM_PROBLEMS)])
    drafts = write_drafts(tmp_path / "drafts.jsonl", [{"problem_id": "p0", "draft": DRAFT}])
    return draft_settings(tmp_path / "results", tiny_folder("llama"), data, drafts)


def test_bad_lines_are_named_and_the_rest_is_measured(
    plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any] | str] = [
        {"problem_id": "p0", "draft": DRAFT},
        "not json",
        '["p1"]',
        {"problem_id": "p0", "draft": "The answer is C."},
        {"problem_id": "p1", "draft": ["The answer is C."]},
        {"problem_id": "p2", "draft": None},
        {"problem_id": "p3", "draft": " \n"},
        {"problem_id": "p9", "draft": DRAFT},
        {"draft": DRAFT},
        {"problem_id": True, "draft": DRAFT},
        {"problem_id": "p4", "draft": "The answer is D."},
    ]
    path = write_drafts(tmp_path / "drafts.jsonl", lines)
    with caplog.at_level(logging.WARNING, "fairwitness"):
        result = run_plain(plain)
    expected = {
        2: "is not valid JSON",
        3: "is a JSON list, not an object with fields",
        4: "field 'problem_id': a second draft for 'p0'; the first one is used",
        5: "field 'draft': must be text, not list",
        6: "field 'draft': is missing or empty",
        7: "field 'draft': is missing or empty",
        8: "field 'problem_id': 'p9' is no problem of the data sets",
        9: "field 'problem_id': is missing or empty",
        10: "field 'problem_id': is missing or empty",
    }
    refused = {row["source"]: row["reason"] for row in rows_of(result.run.store_path, "problems") if row["source"]}
    assert refused.keys() == {f"{path}:{line}" for line in expected}
    for line, reason in expected.items():
        assert reason in refused[f"{path}:{line}"]
    assert f"refused: {path}:2 (record 2): is not valid JSON" in caplog.text
    assert "4 more lines were refused" in caplog.text
    drafts = {row["problem_id"]: row for row in rows_of(result.run.store_path, "drafts")}
    assert {name for name, row in drafts.items() if row["status"] == "ok"} == {"p0", "p4"}
    assert drafts["p0"]["draft_text"] == DRAFT
    assert drafts["p1"]["reason"].endswith(f"{path}:5 (record 5): field 'draft': must be text, not list")
    assert drafts["p5"]["reason"] == "the file has no usable draft for this problem"
    assert (result.counts["refused"], result.exit_code) == (len(expected), 0)


def test_a_line_that_was_mended_is_no_longer_named(
    plain: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"problem_id": "p0", "draft": DRAFT}
    write_drafts(tmp_path / "drafts.jsonl", [good, {"problem_id": "p1"}])
    first = run_plain(plain)
    assert load_draft_run(first.run).problems["status"].eq("refused").sum() == 1
    write_drafts(tmp_path / "drafts.jsonl", [good, {"problem_id": "p1", "draft": DRAFT}])
    second = run_plain(plain)
    assert "changed since the last time: data set new or changed: other@" in caplog.text
    assert load_draft_run(second.run).problems["status"].eq("refused").sum() == 0
    assert (first.counts["refused"], second.counts["refused"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("drafts.jsonl", "", "drafts.jsonl: the file is empty"),
        ("drafts.jsonl", "\n \n", "drafts.jsonl: the file is empty"),
        ("drafts.jsonl", "{", "no usable draft (1 line was refused; the first: "),
        ("drafts.jsonl", '{"problem_id": "x", "draft": "B"}\n' * 2, "2 lines were refused; the first: "),
        ("drafts.csv", "problem_id,draft\n", "drafts.csv: the file is empty"),
        ("drafts.docx", "x", "unknown format '.docx'; use a file that ends in .jsonl"),
        ("absent.jsonl", None, "absent.jsonl: there is no such file; check `path`"),
    ],
)
def test_files_that_are_refused(
    command: Command, plain: dict[str, Any], tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    plain["draft_files"] = [{"name": "other", "path": str(path)}]
    found = command(plain).refused()
    assert found.startswith(f"draft_files, other: {path}: ")
    assert message in found
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("draft_files.0.where={model: r1}", "none of its 1 lines has model 'r1'; check `where`"),
        ("draft_files.0.draft_field=cot", "field 'cot': is missing or empty"),
        (
            "draft_files.0.encoding=utf-99",
            "draft_files.0.encoding: encoding 'utf-99' is unknown; use for example utf-8",
        ),
        ("draft_files.0.pth=x", "unknown key 'draft_files.0.pth'; did you mean 'path'?"),
        ("limits.draft=0", "limits.draft: "),
        ("positions=[start]", "positions.0: "),
    ],
)
def test_settings_that_are_refused(command: Command, plain: dict[str, Any], override: str, message: str) -> None:
    assert message in command(plain, override).refused()


def test_an_encoding_that_is_named_is_used(plain: dict[str, Any], tmp_path: Path) -> None:
    text = "Füchse schlafen. The answer is B."
    path = tmp_path / "drafts.jsonl"
    path.write_bytes(json.dumps({"problem_id": "p0", "draft": text}, ensure_ascii=False).encode("cp1252"))
    plain["draft_files"][0]["encoding"] = "cp1252"
    drafts = {row["problem_id"]: row["draft_text"] for row in rows_of(run_plain(plain).run.store_path, "drafts")}
    assert drafts["p0"] == text


def test_an_id_of_two_data_sets(command: Command, plain: dict[str, Any], tmp_path: Path) -> None:
    data = write_problems(tmp_path / "birds.jsonl", [problem(0, question="Which one flies?")])
    plain["data_sets"].append({**plain["data_sets"][0], "name": "birds", "path": str(data)})
    found = command(plain).refused()
    assert "'p0' is a problem of more than one data set; measure the data sets in runs of their own" in found


@pytest.mark.parametrize("who", ["judge", "writer"])
def test_judges_that_cannot_be_asked(
    command: Command,
    plain: dict[str, Any],
    tmp_path: Path,
    tiny_folder: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    who: str,
) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    plain |= {"judge": {"behaviour_by": "judge"}, "writer": {"conclusions": ["direct", "plausible"]}}[who]
    keyless = {**plain, who: {"kind": "openai", "model": "large", "api_key_env": "ABSENT_KEY"}}
    assert "ABSENT_KEY" in command(keyless).refused()
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "bare")
    (folder / "chat_template.jinja").unlink()
    bare = {**plain, who: {"kind": "local", "model": {"model": str(folder)}}}
    assert "no chat template" in command(bare).refused()
    assert not (tmp_path / "results").exists()
