"""Token ids of prompts, with every special token explicit and no generated token ever tokenised again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from string import ascii_uppercase
from typing import Literal, NamedTuple, Protocol

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from fairwitness.errors import ModelError
from fairwitness.text import prompts

LetterContext = Literal["direct", "cot_answer"]

MAX_LETTERS = len(ascii_uppercase)
_SENTINEL = "\u2402COT\u2403"
_ANCHOR = "a"

_FIXED_DATE = "26 Jul 2024"
"""Shown by templates that print today's date, so that prompts are the same tomorrow."""

_FIXED_CLOCK = "{% macro strftime_now(format) %}" + _FIXED_DATE + "{% endmacro %}"


class Question(Protocol):
    """What a prompt is made of; `fairwitness.problems.problem.Problem` is one."""

    @property
    def question(self) -> str:
        """The question."""
        ...

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts of the choices."""
        ...


class _Sample(NamedTuple):
    question: str
    choices: tuple[str, ...]


SAMPLE = _Sample("Which is it?", ("this", "that"))
"""Stands for any problem where only the end of a prompt matters."""


def encode(tokenizer: PreTrainedTokenizerBase, text: str, *, parse_special: bool = False) -> list[int]:
    """Ids of a text, with nothing added at either end.

    Args:
        tokenizer: The tokenizer.
        text: The text; an empty one gives no ids.
        parse_special: Whether a special token that is written out in the text (a chat template's `<|im_end|>`)
            becomes that token. Off for problem texts: a question that mentions `</s>` must not end the prompt.
    """
    if not text:
        return []
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=not parse_special)
    return [int(token_id) for token_id in ids]


def encode_continuation(tokenizer: PreTrainedTokenizerBase, text: str, *, parse_special: bool = False) -> list[int]:
    """Ids of a text that goes on after other tokens.

    Tokenizers of the SentencePiece family put a space before every text that they are given; in the middle of a
    prompt that space would be a character nobody wrote. So the text is tokenised after an anchor, whose ids are
    taken off again; where the anchor merges with the text, the text is tokenised alone.
    """
    anchor_ids = encode(tokenizer, _ANCHOR)
    ids = encode(tokenizer, _ANCHOR + text, parse_special=parse_special)
    if ids[: len(anchor_ids)] == anchor_ids:
        return ids[len(anchor_ids) :]
    return encode(tokenizer, text, parse_special=parse_special)


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text of generated ids, special tokens shown, spaces as they are."""
    if not ids:
        return ""
    text = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def bos_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The BOS id, alone, if the tokenizer would put it before a text by itself; else no id."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return []
    ids = tokenizer.encode(_ANCHOR, add_special_tokens=True)
    return [int(bos)] if list(ids)[:1] == [bos] else []


def render_chat(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], *, thinking: bool = False) -> str:
    """Finished turns as the tokenizer's chat template writes them, up to where the assistant's next turn begins.

    At most one BOS stands at the start; a template that prints today's date prints a fixed one.

    Args:
        tokenizer: A tokenizer with a chat template.
        turns: The turns, each with `role` and `content`.
        thinking: What a template is told that can switch thinking on and off.

    Raises:
        ModelError: The template cannot be used, for example because it knows no `system` turn.
    """
    try:
        text = tokenizer.apply_chat_template(
            turns,
            chat_template=_FIXED_CLOCK + tokenizer.get_chat_template(),
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
            date_string=_FIXED_DATE,
        )
    except (TemplateError, ValueError, TypeError) as error:
        raise ModelError(f"the chat template cannot be used ({error})") from error
    return _single_bos(str(text), tokenizer.bos_token)


class PromptEncoder:
    """Writes the prompts of a model in one style and gives their ids.

    In style `plain` a BOS comes first exactly if the tokenizer would put one there itself. In style `chat` the
    template decides: a BOS that it writes is kept, one only, and none is added.

    Args:
        tokenizer: The tokenizer.
        style: `plain` or `chat`.

    Raises:
        ModelError: Style `chat` and the tokenizer has no chat template, or its template cannot be used.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, style: prompts.PromptStyle) -> None:
        self.tokenizer = tokenizer
        self.style = style
        if style == "chat" and not tokenizer.chat_template:
            raise ModelError("the tokenizer has no chat template; set prompt_style: plain, or give a chat model")

    def direct(self, problem: Question) -> list[int]:
        """Ids of the prompt that ends where the answer letter is due, without a CoT."""
        if self.style == "plain":
            return self._plain_ids(prompts.direct_prompt(problem.question, problem.choices))
        return self._chat_ids(self._render(prompts.chat_direct(problem.question, problem.choices)))

    def cot(self, problem: Question) -> list[int]:
        """Ids of the prompt that ends where the CoT begins."""
        if self.style == "plain":
            return self._plain_ids(prompts.cot_prompt(problem.question, problem.choices))
        return self._chat_ids(self._render(prompts.chat_cot(problem.question, problem.choices)))

    def cot_answer(self, problem: Question, cot_ids: Sequence[int]) -> list[int]:
        """Ids of the CoT prompt, the CoT as it was generated, and the follow-up that asks for the letter."""
        return [*self.cot(problem), *cot_ids, *self.cot_answer_suffix_ids]

    @cached_property
    def cot_answer_suffix_ids(self) -> list[int]:
        """Ids of everything between the CoT and the answer letter, the same for every problem."""
        return encode_continuation(self.tokenizer, self._cot_answer_suffix, parse_special=self.style == "chat")

    def letter_ids(self, num_choices: int, context: LetterContext = "direct") -> list[int]:
        """Ids of the first letters of the alphabet as the tokenizer gives them at the end of a prompt.

        Raises:
            ModelError: More than 26 choices; a letter merges with what stands before it, takes several tokens, or
                shares its token with another one.
        """
        if not 1 <= num_choices <= MAX_LETTERS:
            raise ModelError(f"{num_choices} choices: there are letters for 1 to {MAX_LETTERS}")
        found = [self._letter_id(letter, context) for letter in ascii_uppercase[:num_choices]]
        if len(set(found)) < len(found):
            raise ModelError("the tokenizer gives two answer letters the same token; this model cannot be measured")
        return found

    def _letter_id(self, letter: str, context: LetterContext) -> int:
        prefix = self._letter_prefix_ids(context, "")
        ids = self._letter_prefix_ids(context, letter)
        if ids[: len(prefix)] != prefix:
            same = next((i for i, pair in enumerate(zip(prefix, ids, strict=False)) if pair[0] != pair[1]), len(ids))
            merged, apart = self._shown(ids[same:]), self._shown(prefix[same:])
            raise ModelError(
                f"the tokenizer merges the answer cue with letter {letter}: "
                f"{merged} in place of {apart} and {letter!r}; its probability cannot be read, use another model"
            )
        rest = ids[len(prefix) :]
        if len(rest) != 1:
            raise ModelError(
                f"the tokenizer writes letter {letter} after the answer cue as {len(rest)} tokens, "
                f"{self._shown(rest)}; one is needed, use another model"
            )
        return rest[0]

    def _letter_prefix_ids(self, context: LetterContext, letter: str) -> list[int]:
        """Ids of what stands before the letter, with the letter, tokenised as the prompt itself is."""
        parse_special = self.style == "chat"
        if context == "cot_answer":
            return encode_continuation(self.tokenizer, self._cot_answer_suffix + letter, parse_special=parse_special)
        plain = self.style == "plain"
        text = prompts.direct_prompt(*SAMPLE) if plain else self._render(prompts.chat_direct(*SAMPLE))
        return encode(self.tokenizer, text + letter, parse_special=parse_special)

    @cached_property
    def _cot_answer_suffix(self) -> str:
        if self.style == "plain":
            return prompts.cot_answer_suffix()
        # The template shows what comes between the turns; the CoT's own ids are never touched.
        rendered = self._render(prompts.chat_cot_answer(*SAMPLE, _SENTINEL))
        parts = rendered.split(_SENTINEL)
        if len(parts) != 2:
            raise ModelError(
                f"the chat template shows the assistant's first turn {len(parts) - 1} times instead of once; "
                "set prompt_style: plain"
            )
        return parts[1]

    def _plain_ids(self, text: str) -> list[int]:
        return bos_ids(self.tokenizer) + encode(self.tokenizer, text)

    def _chat_ids(self, text: str) -> list[int]:
        return encode(self.tokenizer, text, parse_special=True)

    def _render(self, chat: prompts.ChatText) -> str:
        """The template's text up to where the model goes on, with at most one BOS at its start."""
        try:
            return render_chat(self.tokenizer, chat.turns) + chat.prefill
        except ModelError as error:
            raise ModelError(f"{error}; set prompt_style: plain") from error

    def _shown(self, ids: Sequence[int]) -> str:
        return " ".join(repr(token) for token in self.tokenizer.convert_ids_to_tokens(list(ids)))


def _single_bos(text: str, bos: str | None) -> str:
    if not bos or not text.startswith(bos):
        return text
    while text.startswith(bos):
        text = text.removeprefix(bos)
    return bos + text
