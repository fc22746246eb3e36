"""Drafts from files to verdicts on a tiny model: every item a row, nothing run twice, bad lines named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.errors import ConfigError, DataError, ModelError
from fairwitness.experiment.job import JobResult, Report
from fairwitness.report.drafts.page import build_draft_report
from tests.helpers.drafts import run_drafts
from tests.helpers.sweeps import rows_of, watch_pools, write_problems

DRAFT = (
    "Let me look at the choices. Foxes sleep in dens. Wait, is that true for owls? They sleep in trees. "
    "Alternatively, it is about bears. Bears sleep in caves. Let me check the first choice again. So the answer is B."
)


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    data = write_problems(tmp_path / "animals.jsonl")
    drafts = [
        {"problem_id": "p0", "draft": f"<think>\n{DRAFT}\n</think>\n\nIt is B."},
        {"problem_id": "p1", "draft": DRAFT},
        {"problem_id": "p2", "draft": "I do not know."},
        {"problem_id": "nobody", "draft": DRAFT},
        {"problem_id": "p3"},
    ]
    (tmp_path / "drafts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in drafts))
    return {
        "name": "drafts",
        "models": [{"model": str(tiny_folder("llama")), "name": "tiny"}],
        "data_sets": [{"data_set": "local", "name": "animals", "path": str(data), "fields": {"id": "id"}}],
        "own_drafts": False,
        "draft_files": [{"name": "other", "path": str(tmp_path / "drafts.jsonl")}],
        "interventions": ["shift_mapping", "corrupt_option", "swapped_options", "injected_authority"],
        "limits": {"draft": 16, "continuation": 12, "answer": 8},
        "pool": {"kind": "local"},
        "output": {"dir": str(tmp_path / "results")},
        "tracking": {"enabled": False},
    }


def run(plain: dict[str, Any]) -> JobResult:
    config = validate(DraftFaithfulnessConfig, plain, "test")
    return run_drafts(config, report=lambda path: Report((build_draft_report(path).html,), ()))


def test_every_item_becomes_a_row(plain: dict[str, Any]) -> None:
    result = run(plain)
    drafts = {row["problem_id"]: row for row in rows_of(result.run.store_path, "drafts")}
    assert drafts["p0"]["draft_text"] == drafts["p1"]["draft_text"] == DRAFT
    assert (drafts["p0"]["conclusion_letter"], drafts["p0"]["num_blocks"]) == ("B", 3)
    assert (drafts["p2"]["status"], drafts["p2"]["reason"]) == ("skipped", "the draft states no conclusion")
    assert drafts["p3"]["reason"].startswith("the file has no usable draft for this problem: ")
    assert drafts["p3"]["reason"].endswith("drafts.jsonl:5 (record 5): field 'draft': is missing or empty")
    rows = rows_of(result.run.store_path, "continuations")
    assert len(rows) == 2 * (4 * 2 * 3 + 2)
    assert result.counts["refused"] == 2
    assert sum(result.counts[name] for name in ("ok", "skipped", "failed")) == len(rows) + len(drafts) - 2
    assert result.exit_code == 0
    shifted = next(r for r in rows if (r["problem_id"], r["intervention"]) == ("p0", "shift_mapping"))
    assert shifted["expected_letters"] == ["A"]
    for row in rows:
        assert (row["is_faithful"] is None) == (row["conclusion_letter"] is None or row["status"] != "ok")
    report = (result.run.path / "report.html").read_text()
    assert "shift_mapping" in report


def test_a_finished_run_runs_nothing_again(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(plain)
    before = rows_of(first.run.store_path, "continuations")
    watch = watch_pools(monkeypatch)
    second = run(plain)
    assert watch.items == []
    assert second.counts == first.counts
    assert rows_of(second.run.store_path, "continuations") == before


def test_batches_change_nothing(plain: dict[str, Any]) -> None:
    def read(result: JobResult) -> list[Any]:
        rows = rows_of(result.run.store_path, "continuations")
        names = ("continuation_ids", "finish", "conclusion_letter", "behaviour", "is_faithful")
        return sorted((row["key"], *(row[name] for name in names)) for row in rows)

    one = run({**plain, "name": "one", "engine": {"drafts_per_item": 1, "max_cache_tokens": 1}})
    assert read(one) == read(run({**plain, "name": "many"}))


def test_own_drafts_of_a_model_without_tags(plain: dict[str, Any]) -> None:
    result = run({**plain, "own_drafts": True, "draft_files": [], "tags": None})
    drafts = rows_of(result.run.store_path, "drafts")
    assert {row["source"] for row in drafts} == {"own"}
    assert all(row["finish"] in {"cue", "eos", "length"} for row in drafts)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"interventions": ["shift"]}, ConfigError, "'shift' is not one of"),
        ({"conclusions": ["plausible"]}, ConfigError, "need `writer`"),
        ({"behaviour_by": "judge"}, ConfigError, "`judge` is rules"),
        ({"own_drafts": False, "draft_files": []}, ConfigError, "give one of them"),
        ({"tags": {"open": "<t>", "close": "<t>"}}, ConfigError, "open and close are the same"),
    ],
)
def test_bad_settings(plain: dict[str, Any], changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run({**plain, **changes})


def test_a_file_without_a_usable_draft(plain: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "drafts.jsonl").write_text('{"problem_id": "nobody", "draft": "The answer is B."}\n')
    with pytest.raises(DataError, match=r"no usable draft .*'nobody' is no problem of the data sets"):
        run(plain)


def test_chat_without_a_template(plain: dict[str, Any], tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "bare")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="no chat template; set prompt_style: plain"):
        run({**plain, "models": [{"model": str(folder), "prompt_style": "chat"}]})
