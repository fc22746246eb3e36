"""Mistakes and paraphrases by a model: a server on this machine that answers, misbehaves or is not there, and a local
model on the pool; what becomes of every reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.errors import ConfigError, ItemError
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.followups.baselines.measure import FurBaselines
from fairwitness.followups.baselines.texts import parse_sentence
from fairwitness.followups.config import FurBaselinesConfig
from fairwitness.judges.protocol import ChatReply
from tests.helpers.chat_server import Action, Asked, chat_server, completion
from tests.helpers.sweeps import problem, rows_of, run, script_cots, settings, watch_pools, write_problems

Row = dict[str, Any]


@pytest.fixture
def swept(tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished sweep at one rate, of CoTs of two steps."""
    data = write_problems(tmp_path / "animals.jsonl", [problem(n, question=f"Fox {n}?") for n in range(9)])
    with monkeypatch.context() as patch:
        script_cots(patch, {})
        changes = {"rates": [1e-3], "recipe": {"num_iterations": 1}, "cot": {"max_new_tokens": 40}}
        return run(settings(tmp_path / "results", tiny_folder("llama"), data, **changes)).run.path


def measure(run_path: Path, judge: Row, *kinds: str, **texts: Any) -> JobResult:
    listed = [{"kind": kind, "texts": {"kind": "judge", "judge": judge, **texts}} for kind in kinds or ("add_mistake",)]
    config = validate(FurBaselinesConfig, {"run": str(run_path), "baselines": listed, "disagreeing": True}, "test")
    return run_measure(FurBaselines(config, Supplies()), lambda _measure: Report((), ()))


def endpoint(url: str, **changes: Any) -> Row:
    return {"kind": "openai", "base_url": url, "model": "writer", "api_key_env": None, "max_retries": 1, **changes}


def rows(run_path: Path, baseline: str = "add_mistake") -> list[Row]:
    return [row for row in rows_of(run_path / "store", "baselines") if row["baseline"] == baseline]


def sentence_of(asked: Asked) -> str:
    return asked.user.partition("<sentence>\n")[2].partition("\n</sentence>")[0]


def owls(asked: Asked, _times: int) -> Action:
    return Action(body=completion(sentence_of(asked).replace("ox", "owl")), delay_s=0.02)


def test_a_model_is_asked_once_for_every_step_and_its_texts_are_used(swept: Path) -> None:
    prices = {"price_per_million_prompt_tokens": 1.0, "price_per_million_completion_tokens": 2.0}
    with chat_server(owls) as server:
        result = measure(swept, endpoint(server.url, **prices), "add_mistake", "paraphrase")
        assert result.exit_code == 0
        assert len(server.asked) == 5 * 2 * 2
        assert server.most_at_once > 1
        measure(swept, endpoint(server.url, **prices), "add_mistake", "paraphrase")
        assert len(server.asked) == 5 * 2 * 2
    for row in rows(swept):
        assert (row["status"], row["source"]) == ("ok", "writer")
        assert row["changed_text"] in ("Foxes dig deep dens.".replace("ox", "owl"), "A red fowl sleeps in a warm den.")
        assert row["changed_text"] in row["cot_text"]
    jobs = [row for row in rows_of(swept / "store", "runs") if row["job"] == "fur_baselines"]
    first, second = sorted(jobs, key=lambda row: row["created_at"])
    spent = json.loads(first["health_json"])["add_mistake: texts by writer"]
    assert spent == {"num_replies": 10, "num_from_cache": 0, "num_failed": 0, "cost": pytest.approx(10 * 20e-6)}
    assert json.loads(second["health_json"])["add_mistake: texts by writer"]["num_replies"] == 0


def test_the_model_is_shown_question_choices_and_step(swept: Path) -> None:
    with chat_server(owls) as server:
        measure(swept, endpoint(server.url))
        (text, *_) = sorted(asked.user for asked in server.asked if "Foxes dig" in asked.user)
    assert "Fox " in text
    assert "(A): red fox\n(B): grey owl" in text
    assert "<sentence>\nFoxes dig deep dens.\n</sentence>" in text


def test_bad_replies_are_failed_rows_and_are_asked_for_again(swept: Path) -> None:
    def misbehaving(asked: Asked, times: int) -> Action:
        if "Foxes" not in sentence_of(asked) or times:
            return owls(asked, times)
        if "Fox 1?" in asked.user:
            return Action(body=completion("Sure!\n\nOwls dig dens."))
        if "Fox 2?" in asked.user:
            return Action(body=completion("Owls dig", finish_reason="length"))
        if "Fox 3?" in asked.user:
            return Action(body=completion(f' "{sentence_of(asked)}" '))
        return Action(status=400, body=b"{}")

    with chat_server(misbehaving) as server:
        assert measure(swept, endpoint(server.url)).exit_code == 1
        first = {(row["problem_id"], row["cot_step_index"]): row for row in rows(swept)}
        assert {row["status"] for (_, index), row in first.items() if index == 1} == {"ok"}
        reasons = {name: row["reason"] for (name, index), row in first.items() if index == 0}
        for name, reason in reasons.items():
            if name == "p1":
                assert reason == "writer: the reply has 2 lines; one sentence was asked for"
            elif name == "p2":
                assert reason == "writer: the reply was cut at texts.max_tokens; raise it"
            elif name == "p3":
                assert reason == "the mistake is identical to the original step (writer)"
            else:
                assert reason.startswith("writer: ")
        assert len(reasons) == 5
        assert {row["status"] for (_, index), row in first.items() if index == 0} <= {"failed", "skipped"}
        measure(swept, endpoint(server.url))
    again = {(row["problem_id"], row["cot_step_index"]): row["status"] for row in rows(swept)}
    cached = {place for place, row in first.items() if "lines" in str(row["reason"]) or "cut" in str(row["reason"])}
    assert {place for place, status in again.items() if status == "failed"} == cached


def test_unusable_models_are_named_before_anything_runs(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watch_pools(monkeypatch)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        measure(swept, endpoint("http://localhost:1/v1", api_key_env="NO_SUCH_KEY"))
    with pytest.raises(ConfigError, match="rules write no text"):
        measure(swept, {"kind": "rules"})
    (tmp_path / "t.yaml").write_text("user: 'Change it: {{ stp }}'", encoding="utf-8")
    with pytest.raises(ConfigError, match="'stp' is no value"):
        measure(swept, endpoint("http://localhost:1/v1"), template=str(tmp_path / "t.yaml"))
    with pytest.raises(ConfigError, match=r"nothing listens|cannot be reached|refused"):
        measure(swept, endpoint("http://127.0.0.1:9/v1", max_retries=0))
    assert watch.items == []
    assert rows(swept) == []


def test_a_local_model_writes_on_the_pool(swept: Path, tiny_folder: Callable[[str], Path]) -> None:
    judge = {"kind": "local", "model": {"model": str(tiny_folder("qwen2")), "name": "small"}}
    result = measure(swept, judge, max_tokens=8)
    # Eight tokens of a random model are always cut: every step is a failed row, and no model measures anything.
    assert {row["reason"] for row in rows(swept)} == {"small: the reply was cut at texts.max_tokens; raise it"}
    assert result.num_models_loaded == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Foxes fly.", "Foxes fly."),
        ('\n "Foxes fly." \n', "Foxes fly."),
        ("“Foxes fly.”", "Foxes fly."),
        ('"Foxes" are "owls"', '"Foxes" are "owls"'),
        ("<think>\nhm\n</think>\n\nFoxes fly.", "Foxes fly."),
    ],
)
def test_one_sentence_is_taken(text: str, sentence: str) -> None:
    assert parse_sentence(ChatReply(text)) == sentence


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ChatReply(None, "boom"), "boom"),
        (ChatReply("Foxes", is_cut=True), "cut at texts.max_tokens"),
        (ChatReply(" \n"), "is empty"),
        (ChatReply("Sure:\nFoxes fly."), "has 2 lines"),
        (ChatReply('" "'), "is empty"),
    ],
)
def test_other_replies_are_refused(reply: ChatReply, reason: str) -> None:
    with pytest.raises(ItemError, match=reason):
        parse_sentence(reply)
