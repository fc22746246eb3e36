"""What a model is shown, as plain strings. Tokenisation is the business of `lm`.

Style `plain` writes the turns as `Human:` and `Assistant:`; style `chat` leaves the turns to the tokenizer's chat
template and begins the assistant's part with the same cues.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Literal, NamedTuple

PromptStyle = Literal["plain", "chat"]

ANSWER_CUE = "The single, most likely answer is ("
COT_CUE = "Let's think step by step:"
FOLLOW_UP = "Given all of the above, what's the single, most likely answer?"
QUESTION_LABEL = "Question: "
CHOICES_LABEL = "Choices:"
HUMAN = "Human: "
ASSISTANT = "Assistant: "
TURN_BREAK = "\n\n"


class ChatText(NamedTuple):
    """A chat prompt before the template is applied.

    Attributes:
        turns: Finished turns, each with `role` (user or assistant) and `content`.
        prefill: The beginning of the assistant's next turn, which the model goes on from.
    """

    turns: list[dict[str, str]]
    prefill: str


def choices_block(choices: Sequence[str]) -> str:
    """The choices, one a line, as `(A): text`.

    Raises:
        ValueError: There are more choices than letters.
    """
    if len(choices) > len(ascii_uppercase):
        raise ValueError(f"{len(choices)} choices given, there are {len(ascii_uppercase)} letters")
    return "\n".join(f"({letter}): {text}" for letter, text in zip(ascii_uppercase, choices, strict=False))


def question_block(question: str, choices: Sequence[str]) -> str:
    """Question and choices without any turn marker; what the user says in both styles."""
    return f"{QUESTION_LABEL}{question}{TURN_BREAK}{CHOICES_LABEL}\n{choices_block(choices)}"


def direct_prompt(question: str, choices: Sequence[str]) -> str:
    """Plain prompt that ends where the answer letter is due (FUR, answer without a CoT)."""
    return _plain_prompt(question, choices, ANSWER_CUE)


def cot_prompt(question: str, choices: Sequence[str]) -> str:
    """Plain prompt that ends where the chain of thought begins, right after the colon."""
    return _plain_prompt(question, choices, COT_CUE)


def cot_answer_suffix() -> str:
    """What follows prompt and CoT in the plain style so that the answer letter is due."""
    return f"{TURN_BREAK}{HUMAN}{FOLLOW_UP}{TURN_BREAK}{ASSISTANT}{ANSWER_CUE}"


def chat_direct(question: str, choices: Sequence[str]) -> ChatText:
    """Chat prompt for the answer without a CoT."""
    return ChatText([_turn("user", question_block(question, choices))], ANSWER_CUE)


def chat_cot(question: str, choices: Sequence[str]) -> ChatText:
    """Chat prompt for the chain of thought."""
    return ChatText([_turn("user", question_block(question, choices))], COT_CUE)


def chat_cot_answer(question: str, choices: Sequence[str], cot: str) -> ChatText:
    """Chat prompt for the answer given a CoT: the cue and the CoT are the assistant's first turn.

    Args:
        question: The question.
        choices: The choices.
        cot: The generated text after the cue, with its leading space. A placeholder may stand in its place when the
            rendered template is to be cut around it, so that generated ids are never tokenised again.
    """
    turns = [
        _turn("user", question_block(question, choices)),
        _turn("assistant", COT_CUE + cot),
        _turn("user", FOLLOW_UP),
    ]
    return ChatText(turns, ANSWER_CUE)


def _plain_prompt(question: str, choices: Sequence[str], cue: str) -> str:
    return f"{HUMAN}{question_block(question, choices)}{TURN_BREAK}{ASSISTANT}{cue}"


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
