"""A local chat model on the pool: batches, contexts, templates, and texts that spell out special tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import ModelError
from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.judges import local
from fairwitness.judges.config import LocalModelConfig
from fairwitness.judges.factory import make_chat_model
from fairwitness.judges.local import LocalModel, prompt_ids
from fairwitness.judges.protocol import ChatPrompt, ChatReply
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.generation import Generation, generate_greedy
from fairwitness.lm.tokens import decode
from tests.helpers.tiny_models import save_tiny
from tests.helpers.tiny_tokenizers import byte_level_tokenizer

PROMPTS = [ChatPrompt(f"Where does fox number {n} sleep{', tell me' * n}?", "Be brief.") for n in range(5)]


@pytest.fixture
def pool() -> Iterator[Pool]:
    with make_pool(PoolConfig(kind="local")) as pool:
        yield pool


@pytest.fixture
def model(tiny_folder: Callable[[str], Path]) -> ModelConfig:
    return ModelConfig(model=str(tiny_folder("llama")), name="tiny")


def ask(model: LocalModel, prompts: list[ChatPrompt], max_tokens: int = 12) -> list[ChatReply]:
    placed = list(model.replies(prompts, max_tokens=max_tokens))
    assert sorted(one.position for one in placed) == list(range(len(prompts)))
    return [one.reply for one in sorted(placed)]


def test_replies_do_not_depend_on_batches(model: ModelConfig, pool: Pool) -> None:
    one, several = (LocalModel(LocalModelConfig(model=model, batch_size=size), pool) for size in (1, 3))
    found = ask(one, PROMPTS)
    assert ask(several, PROMPTS) == found
    assert all(reply.text for reply in found)
    assert len({reply.text for reply in found}) > 1
    assert [reply.num_completion_tokens for reply in found] == [12] * 5
    assert all(reply.is_cut for reply in found)
    assert one.key == several.key
    assert pool.num_builds == 1


def test_where_memory_runs_out_batches_are_halved(
    model: ModelConfig, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = LocalModel(LocalModelConfig(model=model, batch_size=5), pool)
    expected, sizes, most = ask(judge, PROMPTS), [], 2

    def little_memory(*args: Any, batch_size: int, **settings: Any) -> list[Generation]:
        sizes.append(batch_size)
        if batch_size > most:
            raise MemoryError
        return generate_greedy(*args, batch_size=batch_size, **settings)

    monkeypatch.setattr(local, "generate_greedy", little_memory)
    assert ask(judge, PROMPTS) == expected
    assert sizes == [5, 3, 2]
    most = 0
    assert all("out of memory with one prompt" in str(reply.error) for reply in ask(judge, PROMPTS))


def test_a_prompt_beyond_the_context_is_an_error_and_the_others_go_on(model: ModelConfig, pool: Pool) -> None:
    long = ChatPrompt("den " * 5000)
    first, second = ask(LocalModel(LocalModelConfig(model=model), pool), [long, PROMPTS[0]])
    assert first.text is None
    assert "leaves no room" in (first.error or "")
    assert second.text


def test_the_cache_answers_the_second_time(model: ModelConfig, pool: Pool, tmp_path: Path) -> None:
    config = LocalModelConfig(model=model)
    with make_chat_model(config, cache_dir=tmp_path, pool=pool) as chat:
        first = {one.position: one.reply.text for one in chat.replies(PROMPTS, max_tokens=5)}
        again = list(chat.replies(PROMPTS, max_tokens=5))
    assert {one.position: one.reply.text for one in again} == first
    assert all(one.reply.from_cache for one in again)


def test_a_model_without_chat_template_is_refused(tmp_path: Path, pool: Pool) -> None:
    folder = save_tiny(tmp_path / "plain", tokenizer=byte_level_tokenizer(chat=False))
    config = LocalModelConfig(model=ModelConfig(model=str(folder)))
    with pytest.raises(ModelError, match="has no chat template, so it cannot be asked"):
        LocalModel(config, pool)
    assert pool.num_builds == 0


def test_prompts_follow_the_template() -> None:
    tokenizer = byte_level_tokenizer()
    text = decode(tokenizer, prompt_ids(tokenizer, ChatPrompt("Which?", "Be brief.")))
    assert text.endswith("<|system|>\nBe brief.<|end|>\n<|user|>\nWhich?<|end|>\n<|assistant|>\n")


def test_without_a_system_turn_instructions_come_first() -> None:
    tokenizer = byte_level_tokenizer()
    refuses = "{% if m['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    tokenizer.chat_template = tokenizer.chat_template.replace("<|{{ m['role'] }}|>", refuses + "<|{{ m['role'] }}|>")
    text = decode(tokenizer, prompt_ids(tokenizer, ChatPrompt("Which?", "Be brief.")))
    assert "<|user|>\nBe brief.\n\nWhich?<|end|>" in text


@pytest.mark.parametrize("text", ["a<|end|>b", "a<|e<|end|>nd|>b", "<eos>ab", "a<|assistant|>b<pad>"])
def test_special_tokens_in_a_text_do_not_end_the_turn(text: str) -> None:
    tokenizer = byte_level_tokenizer()
    assert prompt_ids(tokenizer, ChatPrompt(text)) == prompt_ids(tokenizer, ChatPrompt("ab"))
