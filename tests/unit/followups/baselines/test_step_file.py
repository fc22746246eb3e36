"""Files of changed steps: our own lines and the published ones; what is refused names file, line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import DataError
from fairwitness.followups.baselines.texts import content_hash, read_step_file

PUBLISHED = Path(__file__).parents[5] / "shared" / "data" / "fur_published" / "mistakes"


def write(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def line(**changes: Any) -> dict[str, Any]:
    return {"problem_id": "p1", "cot_step_index": 0, "text": "Foxes build nests.", **changes}


def test_reads_lines_with_their_places(tmp_path: Path) -> None:
    path = write(tmp_path / "steps.jsonl", line(), "", line(cot_step_index=1, original="x", model="m", data_set="d"))
    found = read_step_file(path)
    assert [entry.where for entry in found] == ["steps.jsonl:1", "steps.jsonl:3"]
    assert found[0].line.text == "Foxes build nests."
    assert (found[1].line.model, found[1].line.original) == ("m", "x")


def test_the_hash_follows_what_the_file_says(tmp_path: Path) -> None:
    first = read_step_file(write(tmp_path / "a.jsonl", line()))
    spaced = read_step_file(write(tmp_path / "b.jsonl", "", json.dumps(line(), indent=None), ""))
    other = read_step_file(write(tmp_path / "c.jsonl", line(text="Foxes fly.")))
    assert content_hash(first) == content_hash(spaced) != content_hash(other)


def test_reads_a_published_line(tmp_path: Path) -> None:
    published = {
        "id": "q7",
        "step_idx": 2,
        "question": "Why?",
        "options": ["A): Yes", "B): No"],
        "cot_step": "It rains.",
        "mistake_cot_step": "It snows.",
        "mistake_model": "some-model",
        "segmented_cot": ["a", "b", "It rains."],
    }
    (entry,) = read_step_file(write(tmp_path / "x.out", published))
    found = entry.line
    assert (found.problem_id, found.cot_step_index, found.text) == ("q7", 2, "It snows.")
    assert (found.original, found.question, found.model) == ("It rains.", "Why?", None)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{nonsense", r"steps.jsonl:2 .*: is not valid JSON .*; mend or remove the line"),
        ('["a"]', "steps.jsonl:2 .*: .*JSON list"),
        ({"problem_id": "p1", "cot_step_index": 1}, "steps.jsonl:2: text: is missing; add it"),
        ({**line(), "txt": "x"}, "steps.jsonl:2: unknown key 'txt'; did you mean 'text'?"),
        (line(cot_step_index=-1), "steps.jsonl:2: cot_step_index: .*greater than or equal to 0"),
        (line(cot_step_index=1, text="  "), "steps.jsonl:2: text: .*is empty"),
        (line(cot_step_index=1, original=""), "steps.jsonl:2: original: .*is empty"),
        ({"mistake_cot_step": "x", "id": "p"}, "steps.jsonl:2: cot_step_index: is missing"),
        (line(text="Foxes fly."), "steps.jsonl:2: problem_id 'p1', cot_step_index 0 is in steps.jsonl:1 already"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, bad: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_step_file(write(tmp_path / "steps.jsonl", line(), bad))


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.jsonl: cannot be read"):
        read_step_file(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match=r"empty\.jsonl: holds no step"):
        read_step_file(write(tmp_path / "empty.jsonl", ""))
    (tmp_path / "latin.jsonl").write_bytes(b'{"problem_id": "\xe9"}')
    with pytest.raises(DataError, match=r"latin\.jsonl:1 .*problem_id"):
        read_step_file(tmp_path / "latin.jsonl")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published records are not beside the repository")
def test_reads_the_published_files() -> None:
    files = sorted(PUBLISHED.rglob("*.out"))
    assert len(files) == 2
    for path in files:
        found = read_step_file(path)
        assert len(found) == 300
        assert all(entry.line.original and entry.line.question for entry in found)
