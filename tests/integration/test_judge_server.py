"""The endpoint against the server of the chat completions protocol that transformers ships, with a real small model."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairwitness.config import validate
from fairwitness.errors import ConfigError
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.judges.config import EndpointConfig, LocalModelConfig
from fairwitness.judges.factory import make_chat_model
from fairwitness.judges.protocol import ChatPrompt
from fairwitness.lm.config import ModelConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

START_S = 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the server did not start within {START_S} s: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def served(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Base URL and name of a tiny random model behind `transformers serve`."""
    model, port = str(tiny_folder("llama")), free_port()
    log = tmp_path_factory.mktemp("serve") / "log.txt"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", model]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        wait_until_healthy(process, port, log)
        yield f"http://127.0.0.1:{port}/v1", model
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def config(served: tuple[str, str], **changes: object) -> EndpointConfig:
    url, model = served
    plain = {"base_url": url, "model": model, "api_key_env": None, "timeout_s": 60, "max_retries": 2, **changes}
    return validate(EndpointConfig, plain, "test")


def test_a_real_server_answers_many_prompts_at_once(served: tuple[str, str], tmp_path: Path) -> None:
    prompts = [ChatPrompt(f"Where does fox number {number} sleep?", "Answer in one word.") for number in range(6)]
    with make_chat_model(config(served, max_concurrency=3), cache_dir=tmp_path, pool=None) as chat:
        first = {one.position: one.reply for one in chat.replies(prompts, max_tokens=8)}
        again = {one.position: one.reply for one in chat.replies(prompts, max_tokens=8)}
    assert sorted(first) == list(range(6))
    for position, reply in first.items():
        assert reply.error is None
        assert reply.text
        assert not reply.from_cache
        assert reply.num_prompt_tokens is not None
        assert reply.num_prompt_tokens > 10
        assert reply.num_completion_tokens is not None
        assert 1 <= reply.num_completion_tokens <= 8
        assert (again[position].text, again[position].from_cache) == (reply.text, True)


def test_greedy_replies_are_the_same_twice(served: tuple[str, str], tmp_path: Path) -> None:
    texts = []
    for folder in ("a", "b"):
        with make_chat_model(config(served), cache_dir=tmp_path / folder, pool=None) as chat:
            texts.append([one.reply.text for one in chat.replies([ChatPrompt("Which fox?")], max_tokens=8)])
    assert texts[0] == texts[1]


def test_a_local_model_replies_as_the_server_does(served: tuple[str, str], tmp_path: Path) -> None:
    prompts = [ChatPrompt(f"Where does fox number {number} sleep?", "Answer in one word.") for number in range(4)]
    local = LocalModelConfig(model=ModelConfig(model=served[1]), batch_size=3)
    found = []
    with make_pool(PoolConfig(kind="local")) as pool:
        for judge in (config(served), local):
            with make_chat_model(judge, cache_dir=tmp_path, pool=pool) as chat:
                placed = sorted(chat.replies(prompts, max_tokens=8))
            found.append([(one.reply.text, one.reply.num_prompt_tokens) for one in placed])
    assert found[0] == found[1]


def test_a_path_that_the_server_does_not_have_is_one_clear_error(served: tuple[str, str], tmp_path: Path) -> None:
    url, _ = served
    wrong = config(served, base_url=url.removesuffix("/v1") + "/elsewhere")
    with (
        make_chat_model(wrong, cache_dir=tmp_path, pool=None) as chat,
        pytest.raises(ConfigError, match="HTTP 404"),
    ):
        list(chat.replies([ChatPrompt("Which fox?")], max_tokens=8))
