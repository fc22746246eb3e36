"""A chat model on the pool's workers: greedy replies in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from transformers import PreTrainedTokenizerBase

from fairwitness.config import fingerprint
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import Pool
from fairwitness.judges.config import LocalModelConfig
from fairwitness.judges.protocol import ChatPrompt, ChatReply, Placed
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.engine import ModelEngine, ModelSpec
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.generation import Generation, generate_greedy
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.memory import within_memory
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode, encode, render_chat


@dataclass(frozen=True)
class ReplyItem:
    """Prompts that are continued together. Gives a `ChatReply` per prompt."""

    prompts: tuple[ChatPrompt, ...]
    max_tokens: int

    def answer(self, engine: ModelEngine) -> list[ChatReply]:
        """A reply per prompt; one that does not fit into the context has an error.

        Where memory runs out, prompts go in batches of half the size.

        Raises:
            ModelError: Not even one prompt fits into memory.
        """
        lm = engine.lm
        ids = [prompt_ids(lm.tokenizer, prompt) for prompt in self.prompts]
        size = len(ids)
        while (generated := within_memory(partial(self._generate, lm, ids, size))) is None:
            if size == 1:
                raise ModelError("out of memory with one prompt; lower the judge's max_tokens or take a smaller model")
            size = (size + 1) // 2
        return [_reply(lm, g, len(prompt)) for g, prompt in zip(generated, ids, strict=True)]

    def _generate(self, lm: LanguageModel, ids: Sequence[Sequence[int]], size: int) -> list[Generation]:
        return generate_greedy(lm, ids, self.max_tokens, batch_size=size, stop_at_blank_line=False)


def _reply(lm: LanguageModel, generation: Generation, num_prompt_tokens: int) -> ChatReply:
    if generation.error is not None:
        return ChatReply(None, generation.error, num_prompt_tokens)
    text = decode(lm.tokenizer, generation.ids)
    error = None if text.strip() else "the reply is empty: the model ended it at once"
    return ChatReply(
        None if error else text,
        error,
        num_prompt_tokens,
        len(generation.ids),
        is_cut=generation.finish == "length",
    )


class LocalModel:
    """A `ChatModel` that sends batches of prompts of similar length to the pool."""

    def __init__(self, config: LocalModelConfig, pool: Pool) -> None:
        """Looks at the model's files; loads nothing.

        Raises:
            ModelError: It cannot be used, for example because it has no chat template.
        """
        self._config, self._pool = config, pool
        self._facts = chat_facts(config.model)

    @property
    def name(self) -> str:
        """For rows and reports."""
        return self._config.shown_name

    @property
    def key(self) -> str:
        """Hash of weights, tokenizer and numeric type."""
        return local_key(self._config, self._facts)

    def replies(self, prompts: Sequence[ChatPrompt], *, max_tokens: int) -> Iterator[Placed]:
        """See `ChatModel.replies`.

        Raises:
            ModelError: The model cannot be loaded.
        """
        order = sorted(range(len(prompts)), key=lambda position: len(prompts[position].user))
        size = self._config.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        items = (ReplyItem(tuple(prompts[p] for p in batch), max_tokens) for batch in batches)
        for outcome in self._pool.map(ModelSpec(self._config.model), items):
            batch = batches[outcome.index]
            found = [ChatReply(None, outcome.error)] * len(batch) if outcome.error else outcome.value
            yield from (Placed(position, reply) for position, reply in zip(batch, found, strict=True))


def local_key(config: LocalModelConfig, facts: ModelFacts) -> str:
    """Hash of weights, tokenizer and numeric type."""
    return fingerprint(["local", facts.revision, config.model.dtype, facts.attention])


def chat_facts(model: ModelConfig) -> ModelFacts:
    """What is known of a model that is to chat; reads no weights.

    Raises:
        ModelError: It cannot be used as it is, or its tokenizer has no chat template, or one that fails.
    """
    facts = inspect_model(model)
    tokenizer = load_tokenizer(facts.folder, model)
    if not tokenizer.chat_template:
        raise ModelError(
            f"{model.shown_name}: the tokenizer has no chat template, so it cannot be asked; give a chat model "
            "(usually named instruct or chat)"
        )
    prompt_ids(tokenizer, ChatPrompt("Which is it?", "Answer."))
    return facts


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: ChatPrompt) -> list[int]:
    """Token ids of a prompt in the model's own chat format, up to where the reply begins.

    Special tokens that the texts spell out are left out: they would end the turn. Where the template knows no system
    turn, the instructions come first in the user's.

    Raises:
        ModelError: The template cannot be used.
    """
    system, user = (_without_special(tokenizer, text) for text in (prompt.system, prompt.user))
    turn = {"role": "user", "content": user}
    if not system:
        return encode(tokenizer, render_chat(tokenizer, [turn]), parse_special=True)
    try:
        text = render_chat(tokenizer, [{"role": "system", "content": system}, turn])
    except ModelError:
        text = render_chat(tokenizer, [{"role": "user", "content": f"{system}\n\n{user}"}])
    return encode(tokenizer, text, parse_special=True)


def _without_special(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    tokens = {token for token in (*tokenizer.all_special_tokens, *added) if token}
    before = None
    while text != before:  # taking one out may bring its neighbours together
        before = text
        for token in sorted(tokens):
            text = text.replace(token, "")
    return text
