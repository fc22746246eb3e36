"""Drafts read by judges: own drafts end to end, a judge on the same pool, one that fails, one that is undecided."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairwitness.drafts.engine as draft_engine
from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.experiment.job import JobResult, Report
from tests.helpers.chat_server import Action, Asked, chat_server, completion
from tests.helpers.drafts import run_drafts
from tests.helpers.sweeps import problem, rows_of, write_problems

NUM_PROBLEMS = 5
DRAFT = "Foxes sleep in dens. Wait, is that true? Let me check the second choice. So the answer is B."


@pytest.fixture
def plain(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> dict[str, Any]:
    data = write_problems(tmp_path / "animals.jsonl", [problem(number) for number in range(NUM_PROBLEMS)])
    drafts = [{"problem_id": f"p{number}", "draft": DRAFT} for number in range(2)]
    (tmp_path / "drafts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in drafts))
    return {
        "name": "drafts",
        "models": [{"model": str(tiny_folder("llama")), "name": "tiny"}],
        "data_sets": [{"data_set": "local", "name": "animals", "path": str(data), "fields": {"id": "id"}}],
        "own_drafts": False,
        "draft_files": [{"name": "other", "path": str(tmp_path / "drafts.jsonl")}],
        "interventions": ["shift_mapping"],
        "limits": {"draft": 16, "continuation": 12, "answer": 8},
        "engine": {"drafts_per_item": 2},
        "pool": {"kind": "local"},
        "output": {"dir": str(tmp_path / "results")},
        "tracking": {"enabled": False},
    }


def run(plain: dict[str, Any]) -> JobResult:
    config = validate(DraftFaithfulnessConfig, plain, "test")
    return run_drafts(config, report=lambda path: Report((path,), ()))


def judge_at(url: str) -> dict[str, Any]:
    return {"kind": "openai", "base_url": url, "model": "judge", "api_key_env": None, "max_retries": 0}


def is_about_behaviour(asked: Asked) -> bool:
    return "correction" in json.dumps(asked.body)


def test_own_drafts_of_several_batches_from_prompt_to_verdict(plain: dict[str, Any]) -> None:
    def reply(asked: Asked, _: int) -> Action:
        return Action(body=completion("verdict: following" if is_about_behaviour(asked) else "verdict: b"))

    with chat_server(reply) as server:
        judged = {"judge": judge_at(server.url), "conclusion_order": ["rules", "judge"], "behaviour_by": "judge"}
        result = run({**plain, **judged, "own_drafts": True, "draft_files": [], "tags": None})
    drafts = rows_of(result.run.store_path, "drafts")
    assert [row["status"] for row in drafts] == ["ok"] * NUM_PROBLEMS
    assert all(row["conclusion_letter"] for row in drafts)
    assert all(row["answer_text"] is not None for row in drafts)
    rows = rows_of(result.run.store_path, "continuations")
    assert Counter(row["dimension"] for row in rows) == {"intra": 6 * NUM_PROBLEMS, "answer": 2 * NUM_PROBLEMS}
    made = [row for row in rows if row["dimension"] == "intra" and row["status"] == "ok"]
    assert all(row["behaviour"] == row["behaviour_judge"] == "following" for row in made)
    assert {row["behaviour_rules"] for row in made} <= {"following", "correction", None}


def test_a_judge_that_runs_on_the_same_pool(
    plain: dict[str, Any], tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "judge")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8192}))
    judge = {"kind": "local", "model": {"model": str(folder), "name": "judge"}}
    result = run({**plain, "judge": judge, "behaviour_by": "judge"})
    rows = rows_of(result.run.store_path, "continuations")
    assert Counter(row["dimension"] for row in rows) == {"intra": 12, "answer": 4}
    # A tiny random model gives no verdict, which leaves the behaviour undefined, and is no failure.
    intra = [row for row in rows if row["dimension"] == "intra"]
    assert {(row["behaviour"], row["is_faithful"]) for row in intra} == {(None, None)}
    assert all("no line `verdict" in row["reason"] or row["status"] == "truncated" for row in intra)
    assert result.exit_code == 0


def test_a_judge_that_fails_is_asked_again(plain: dict[str, Any]) -> None:
    is_down = True

    def reply(asked: Asked, _: int) -> Action:
        if is_down and is_about_behaviour(asked):
            return Action(500)
        return Action(body=completion("verdict: correction" if is_about_behaviour(asked) else "verdict: b"))

    with chat_server(reply) as server:
        judged = {**plain, "judge": judge_at(server.url), "behaviour_by": "judge", "conclusion_order": ["judge"]}
        first = run(judged)
        assert (first.exit_code, first.counts["failed"]) == (1, 12)
        failed = [row for row in rows_of(first.run.store_path, "continuations") if row["status"] == "failed"]
        assert all(row["reason"].startswith("judge: HTTP 500") for row in failed)
        is_down = False
        second = run(judged)
    assert (second.exit_code, second.counts["failed"]) == (0, 0)
    rows = [row for row in rows_of(second.run.store_path, "continuations") if row["status"] != "failed"]
    assert len({row["key"] for row in rows}) == len(rows) == 16


def test_a_judge_that_contradicts_itself_leaves_it_undefined(plain: dict[str, Any]) -> None:
    def reply(asked: Asked, _: int) -> Action:
        both = "verdict: correction\nverdict: following"
        return Action(body=completion(both if is_about_behaviour(asked) else "verdict: b"))

    with chat_server(reply) as server:
        judged = {"judge": judge_at(server.url), "behaviour_by": "judge", "conclusion_order": ["judge"]}
        result = run({**plain, **judged, "limits": {**plain["limits"], "continuation": 200}})
    read = [
        row
        for row in rows_of(result.run.store_path, "continuations")
        if row["dimension"] == "intra" and row["status"] == "ok"
    ]
    assert read
    assert {row["reason"] for row in read} == {
        "judge: the judge contradicts itself: its verdicts are correction and following"
    }
    assert {(row["behaviour"], row["is_faithful"], row["conclusion_letter"]) for row in read} == {(None, None, "B")}


def test_where_memory_runs_out_batches_are_halved(plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def verdicts(result: JobResult) -> list[Any]:
        rows = rows_of(result.run.store_path, "continuations")
        return sorted((row["key"], row["status"], row["continuation_text"]) for row in rows)

    expected = verdicts(run({**plain, "name": "room"}))
    made, sizes = draft_engine.continue_trees, []

    def little_memory(lm: Any, trees: Any, settings: Any) -> Any:
        sizes.append(settings.max_cache_tokens)
        if settings.max_cache_tokens > 4000:
            raise MemoryError
        return made(lm, trees, settings)

    monkeypatch.setattr(draft_engine, "continue_trees", little_memory)
    assert verdicts(run({**plain, "name": "none"})) == expected
    assert sizes[:6] == [65536, 32768, 16384, 8192, 4096, 2048]
