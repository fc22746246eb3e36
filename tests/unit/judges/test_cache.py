"""Replies are asked once, failures again; damaged files and full disks stop nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fairwitness.judges.cache import CachedModel, ReplyCache
from fairwitness.judges.protocol import ChatPrompt, ChatReply, Placed


class Scripted:
    """A chat model that replies with its prompt, the last one first; prompts with `bad` fail."""

    name = "scripted"

    def __init__(self, key: str = "k" * 32) -> None:
        self.key = key
        self.asked: list[str] = []

    def replies(self, prompts: Sequence[ChatPrompt], *, max_tokens: int) -> Iterator[Placed]:
        for position in reversed(range(len(prompts))):
            text = prompts[position].user
            self.asked.append(text)
            failed = ChatReply(None, "HTTP 500")
            yield Placed(position, failed if "bad" in text else ChatReply(text.upper(), None, 3, 1, 0.5, is_cut=True))


def ask(model: Scripted, folder: Path, *texts: str, system: str = "", max_tokens: int = 9) -> list[ChatReply]:
    prompts = [ChatPrompt(text, system) for text in texts]
    placed = list(CachedModel(model, ReplyCache(folder)).replies(prompts, max_tokens=max_tokens))
    assert sorted(one.position for one in placed) == list(range(len(texts)))
    return [one.reply for one in sorted(placed)]


def test_a_second_time_nothing_is_asked(tmp_path: Path) -> None:
    model = Scripted()
    first = ask(model, tmp_path, "a", "b")
    again = ask(model, tmp_path, "b", "c", "a")
    assert model.asked == ["b", "a", "c"]
    assert first == [ChatReply(text, None, 3, 1, 0.5, is_cut=True) for text in "AB"]
    assert again[0] == ChatReply("B", None, 3, 1, 0.0, from_cache=True, is_cut=True)
    assert [reply.from_cache for reply in again] == [True, False, True]


def test_failures_are_not_kept(tmp_path: Path) -> None:
    model = Scripted()
    for _ in range(2):
        assert ask(model, tmp_path, "bad")[0].error == "HTTP 500"
    assert model.asked == ["bad", "bad"]
    assert not list(tmp_path.rglob("*.json"))


def test_equal_prompts_are_asked_once(tmp_path: Path) -> None:
    model = Scripted()
    replies = ask(model, tmp_path, "a", "a", "bad", "bad", "a")
    assert model.asked == ["bad", "a"]
    assert [reply.text for reply in replies] == ["A", "A", None, None, "A"]
    assert [reply.cost for reply in replies] == [0.5, 0, 0, 0, 0]


def test_a_reply_depends_on_judge_prompt_and_limit(tmp_path: Path) -> None:
    models = [Scripted(), Scripted("other" * 6)]
    for model in models:
        ask(model, tmp_path, "a")
        ask(model, tmp_path, "a", system="s")
        ask(model, tmp_path, "a", max_tokens=10)
        assert len(model.asked) == 3
    assert len(list(tmp_path.rglob("*.json"))) == 6


@pytest.mark.parametrize("content", [b"", b"{", b'{"text": 3}', b"\xff", b"[]"])
def test_a_damaged_file_is_asked_again_and_mended(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    model = Scripted()
    ask(model, tmp_path, "a")
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(content)
    assert ask(model, tmp_path, "a")[0].text == "A"
    assert "is not a stored reply" in caplog.text
    assert ask(model, tmp_path, "a")[0].from_cache
    assert model.asked == ["a", "a"]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert [reply.text for reply in ask(Scripted(), tmp_path / "file", "a", "b")] == ["A", "B"]
    assert caplog.text.count("replies cannot be kept") == 1


def test_no_half_written_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairwitness.judges.cache.os.replace", full)
    assert ask(Scripted(), tmp_path, "a")[0].text == "A"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
