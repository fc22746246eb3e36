"""The endpoint against a real server that replies, refuses, breaks off, hangs, talks nonsense, or is not there."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from fairwitness.config import validate
from fairwitness.errors import ConfigError
from fairwitness.judges.config import EndpointConfig
from fairwitness.judges.endpoint import MAX_FRUITLESS, Endpoint
from fairwitness.judges.protocol import ChatPrompt, ChatReply
from tests.helpers.chat_server import Action, Asked, ChatServer, Script, chat_server, completion, refusal

KEY = "sk-test-0123456789"
PROMPT = ChatPrompt("Which is it?", "Be brief.")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    monkeypatch.setattr("fairwitness.judges.wire.FIRST_WAIT_S", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def config(url: str, **changes: Any) -> EndpointConfig:
    plain = {"base_url": url, "model": "m", "api_key_env": "JUDGE_KEY", "max_retries": 2, "timeout_s": 5, **changes}
    return validate(EndpointConfig, plain, "test")


def ask(url: str, *prompts: ChatPrompt, max_tokens: int = 50, **changes: Any) -> list[ChatReply]:
    endpoint = Endpoint(config(url, **changes))
    placed = list(endpoint.replies(prompts or (PROMPT,), max_tokens=max_tokens))
    assert sorted(one.position for one in placed) == list(range(len(prompts or (PROMPT,))))
    return [one.reply for one in sorted(placed)]


def numbered(count: int) -> list[ChatPrompt]:
    return [ChatPrompt(f"question {number}") for number in range(count)]


def echo(asked: Asked, _times: int) -> Action:
    return Action(body=completion(f"echo {asked.user}"))


def first(bad: Action, times: int = 1) -> Script:
    """Does something bad the first `times` times, then replies."""
    return lambda asked, before: bad if before < times else echo(asked, before)


def only(server: ChatServer) -> Asked:
    (asked,) = server.asked
    return asked


def test_sends_what_the_protocol_wants_and_reads_the_reply() -> None:
    with chat_server(echo) as server:
        assert ask(server.url) == [ChatReply("echo Which is it?", None, 10, 5)]
    asked = only(server)
    assert asked.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which is it?"}],
        "max_tokens": 50,
        "temperature": 0.0,
    }
    assert asked.headers["authorization"] == f"Bearer {KEY}"


def test_names_of_fields_can_follow_the_endpoint() -> None:
    with chat_server(echo) as server:
        ask(server.url, ChatPrompt("q"), temperature=None, limit_field="max_completion_tokens")
    assert only(server).body == {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "max_completion_tokens": 50,
    }


def test_a_server_without_key_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-someone-else")
    with chat_server(echo) as server:
        ask(server.url, api_key_env=None)
    assert "authorization" not in only(server).headers


@pytest.mark.parametrize(
    "bad",
    [
        refusal(429, "slow down"),
        refusal(500, "broken"),
        refusal(503, "overloaded"),
        Action(body=b"<html>not json</html>", headers={"Content-Type": "text/html"}),
        Action(body=b'{"choices": ['),
        Action(body=b"{}"),
        Action(body=b'{"choices": []}'),
        Action(body=b'{"choices": [{"message": "hello"}]}'),
        Action(body=b"\xff\xfe"),
        Action(body=completion("whole"), cut_at=40),
        Action(drop=True),
    ],
    ids=["429", "500", "503", "html", "half json", "no choices", "no choice", "wrong shape", "bytes", "cut", "dropped"],
)
def test_passing_trouble_is_tried_again_and_lasting_trouble_is_a_reply_with_an_error(bad: Action) -> None:
    with chat_server(first(bad)) as server:
        assert ask(server.url)[0].text == "echo Which is it?"
    assert len(server.asked) == 2
    with chat_server(lambda _asked, _times: bad) as server:
        (reply,) = ask(server.url)
    assert len(server.asked) == 3
    assert reply.text is None
    assert reply.error is not None
    assert reply.error.endswith("(3 attempts)")
    assert "\n" not in reply.error


def test_no_answer_within_the_time_is_an_error() -> None:
    with chat_server(lambda _asked, _times: Action(delay_s=30)) as server:
        began_s = time.monotonic()
        (reply,) = ask(server.url, timeout_s=0.2, max_retries=1)
        assert time.monotonic() - began_s < 5
    assert (reply.text, reply.error) == (None, "no reply within 0.2 s (2 attempts)")


@pytest.mark.parametrize("header", [{"Retry_After": "0.3"}, {"Retry_After_Ms": "300"}])
def test_the_wait_that_the_server_asks_for_is_kept(header: dict[str, str]) -> None:
    with chat_server(first(refusal(429, "slow down", **header))) as server:
        assert ask(server.url)[0].error is None
    before, after = server.asked
    assert 0.3 <= after.at_s - before.at_s < 3


def test_others_wait_too_while_the_server_asks_for_a_pause() -> None:
    def script(asked: Asked, times: int) -> Action:
        if asked.user == "question 0" and times == 0:
            return refusal(429, "slow down", Retry_After="0.5")
        return echo(asked, times)

    with chat_server(script) as server:
        ask(server.url, *numbered(3), max_concurrency=1)
    assert server.asked[1].at_s - server.asked[0].at_s >= 0.5


def test_a_wait_that_is_too_long_is_not_made() -> None:
    with chat_server(lambda _asked, _times: refusal(429, "slow down", Retry_After="3600")) as server:
        (reply,) = ask(server.url, max_wait_s=1)
    assert len(server.asked) == 1
    assert reply.error == "HTTP 429: slow down; the server asks for a wait of 3600 s, above max_wait_s"


@pytest.mark.parametrize(("status", "message"), [(400, "too long"), (422, "what"), (413, "big")])
def test_a_refused_prompt_is_not_tried_again_and_others_go_on(status: int, message: str) -> None:
    def script(asked: Asked, times: int) -> Action:
        return refusal(status, message) if asked.user == "question 1" else echo(asked, times)

    with chat_server(script) as server:
        replies = ask(server.url, *numbered(3))
    assert [reply.error for reply in replies] == [None, f"HTTP {status}: {message}", None]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "bad",
    [
        refusal(401, f"Incorrect API key provided: {KEY}"),
        refusal(403, "no"),
        refusal(404, "no such model"),
        refusal(429, "pay", code="insufficient_quota"),
    ],
    ids=["401", "403", "404", "no credit"],
)
def test_an_endpoint_that_can_never_answer_is_one_clear_error(bad: Action) -> None:
    with (
        chat_server(lambda _asked, _times: bad) as server,
        pytest.raises(ConfigError, match=r"judge m at http") as info,
    ):
        ask(server.url, *numbered(4), max_concurrency=1)
    assert len(server.asked) == 1
    assert KEY not in str(info.value)
    assert info.value.__cause__ is None or KEY not in str(info.value.__cause__)


def test_nothing_at_the_address_is_one_clear_error() -> None:
    with chat_server(echo) as server:
        url = server.url
    with pytest.raises(ConfigError, match="nothing answers at"):
        ask(url)


def test_a_server_that_never_replies_is_given_up() -> None:
    with chat_server(lambda _asked, _times: refusal(500, "broken")) as server:
        replies = ask(server.url, *numbered(100), max_retries=0, max_concurrency=4)
    assert MAX_FRUITLESS <= len(server.asked) <= MAX_FRUITLESS + 3
    errors = [reply.error or "" for reply in replies]
    assert sum(error.startswith("not asked: ") and "HTTP 500: broken" in error for error in errors) >= 77
    assert all(errors)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (completion(None, finish_reason="content_filter"), "the reply holds no text (finish_reason: content_filter)"),
        (completion("  \n", finish_reason="length"), "the reply holds no text (finish_reason: length)"),
        (
            completion(None, message={"content": None, "refusal": "I will not."}),
            "the model refused: I will not.",
        ),
    ],
)
def test_a_reply_without_text_is_an_error_and_not_asked_again(body: bytes, error: str) -> None:
    with chat_server(lambda _asked, _times: Action(body=body)) as server:
        (reply,) = ask(server.url)
    assert len(server.asked) == 1
    assert (reply.text, reply.error) == (None, error)


def test_a_cut_reply_says_so() -> None:
    with chat_server(lambda _asked, _times: Action(body=completion("half a", finish_reason="length"))) as server:
        assert ask(server.url)[0].is_cut


def test_concurrency_is_used_and_not_exceeded() -> None:
    def slow(asked: Asked, _times: int) -> Action:
        return Action(body=completion(asked.user), delay_s=0.1)

    with chat_server(slow) as server:
        ask(server.url, *numbered(24), max_concurrency=6)
    assert server.most_at_once == 6


def test_requests_are_paced_repeated_ones_too() -> None:
    with chat_server(first(refusal(500, "broken"))) as server:
        ask(server.url, *numbered(3), requests_per_minute=240)
    times = [asked.at_s for asked in server.asked]
    assert len(times) == 6
    assert times[-1] - times[0] >= 0.8  # 1.25 s apart when sent; the first may arrive late


def test_cost_is_counted_and_stops_further_requests() -> None:
    prices = {"price_per_million_prompt_tokens": 1e6, "price_per_million_completion_tokens": 2e6}

    def priced(asked: Asked, _times: int) -> Action:
        return Action(body=completion(asked.user, prompt_tokens=3, completion_tokens=1))

    with chat_server(priced) as server:
        # Each costs 3 + 2 = 5; before it is sent, at most 10 + 64 bytes and 2 × 2 for the reply: 78.
        replies = ask(server.url, *numbered(30), max_tokens=2, max_cost=100.0, max_concurrency=7, **prices)
    costs = [reply.cost for reply in replies]
    assert sum(costs) <= 100
    assert costs.count(5.0) == len(server.asked) == 5
    refused = [reply.error for reply in replies if reply.error]
    assert len(refused) == 25
    assert all("max_cost 100 would be exceeded (25 spent)" in (error or "") for error in refused)


def test_a_budget_covers_all_calls_of_one_model() -> None:
    prices = {"price_per_million_prompt_tokens": 1e6}
    with chat_server(echo) as server:
        endpoint = Endpoint(config(server.url, max_cost=90.0, **prices))
        said = [one.reply.error for _ in range(3) for one in endpoint.replies([ChatPrompt("q")], max_tokens=1)]
    assert [error is None for error in said] == [True, True, True]
    assert len(server.asked) == 3
    with chat_server(echo) as server:
        endpoint = Endpoint(config(server.url, max_cost=70.0, **prices))
        said = [one.reply.error for _ in range(3) for one in endpoint.replies([ChatPrompt("q")], max_tokens=1)]
    assert [error is None for error in said] == [True, False, False]


def test_a_server_that_counts_no_tokens_does_not_escape_the_budget() -> None:
    def uncounted(asked: Asked, _times: int) -> Action:
        return Action(body=b'{"choices": [{"message": {"content": "yes"}}]}')

    with chat_server(uncounted) as server:
        replies = ask(server.url, *numbered(3), max_cost=150.0, price_per_million_prompt_tokens=1e6, max_concurrency=1)
    assert [reply.num_prompt_tokens for reply in replies] == [None] * 3
    assert [reply.cost for reply in replies] == [74.0, 74.0, 0.0]
    assert len(server.asked) == 2


def test_leaving_early_ends_the_requests() -> None:
    with chat_server(
        lambda asked, _times: Action(body=completion("x"), delay_s=0 if "0" in asked.user else 30)
    ) as server:
        replies = Endpoint(config(server.url, timeout_s=60)).replies(numbered(8), max_tokens=5)
        next(replies)
        began_s = time.monotonic()
        replies.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began_s < 3
    assert not [thread for thread in threading.enumerate() if thread.name == "judge-requests"]


def test_no_prompts_no_requests() -> None:
    endpoint = Endpoint(config("http://127.0.0.1:9/v1"))
    assert list(endpoint.replies([], max_tokens=5)) == []


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_a_missing_key_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("JUDGE_KEY")
    else:
        monkeypatch.setenv("JUDGE_KEY", value)
    with pytest.raises(ConfigError, match="JUDGE_KEY holds no key for http://x/v1; export it"):
        Endpoint(config("http://x/v1"))


def test_a_broken_key_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-first\nsk-second")
    with pytest.raises(ConfigError, match="export the key alone") as info:
        Endpoint(config("http://x/v1"))
    assert "sk-" not in str(info.value)


def test_the_key_shows_up_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    def telltale(asked: Asked, times: int) -> Action:
        if asked.user == "question 0":
            return Action(body=completion(f"your key is {KEY}"))
        return refusal(400, f"bad key {KEY}")

    with caplog.at_level(logging.DEBUG), chat_server(telltale) as server:
        endpoint = Endpoint(config(server.url))
        replies = [one.reply for one in endpoint.replies(numbered(2), max_tokens=5)]
    assert KEY not in repr(replies) + caplog.text + endpoint.key + endpoint.name
    assert {reply.text for reply in replies} == {"your key is ***", None}


def test_the_judges_key_names_what_replies_depend_on() -> None:
    def key(**changes: Any) -> str:
        return Endpoint(config("http://x/v1", **changes)).key

    assert key() == key(max_retries=9, max_concurrency=3, name="other")
    assert len({key(), key(model="n"), key(temperature=0.5), key(base_url="http://y/v1")}) == 4
