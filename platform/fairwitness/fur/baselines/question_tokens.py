"""Which tokens of a prompt are the question and its choices."""

from __future__ import annotations

from functools import partial

from fairwitness.errors import ItemError
from fairwitness.fur.tasks import Ids
from fairwitness.lm.tokens import PromptEncoder, decode
from fairwitness.problems.problem import Problem
from fairwitness.text.alignment import align_tokens
from fairwitness.text.prompts import QUESTION_LABEL, question_block


def question_tokens(encoder: PromptEncoder, problem: Problem) -> Ids:
    """Positions of the tokens of question and choices, the same in the direct prompt and in the prompt of the CoT.

    The label before the question, turn markers and cues are not among them.

    Raises:
        ItemError: The text is not found in the prompt's tokens, or the two prompts differ before its end.
    """
    direct, cot = encoder.direct(problem), encoder.cot(problem)
    text, spans = align_tokens(partial(decode, encoder.tokenizer), direct)
    wanted = question_block(problem.question, problem.choices).removeprefix(QUESTION_LABEL)
    start = text.find(wanted)
    if start < 0:
        raise ItemError("the question is not found in the tokens of its prompt, so its tokens cannot be masked")
    end = start + len(wanted)
    found = tuple(i for i, span in enumerate(spans) if span.start < end and span.end > start)
    if direct[: found[-1] + 1] != cot[: found[-1] + 1]:
        raise ItemError("the question has other tokens in the direct prompt than in the prompt of the CoT")
    return found


def mask_token(encoder: PromptEncoder) -> int:
    """Id that stands for a hidden token: the tokenizer's mask token, or the first token of "..." without one."""
    own = encoder.tokenizer.mask_token_id
    return int(own) if own is not None else int(encoder.tokenizer.encode("...", add_special_tokens=False)[0])
