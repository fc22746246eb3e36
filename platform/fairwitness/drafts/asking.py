"""How many requests a judge and a writer would get at most, and what the replies would cost at most.

What is known of a prompt is counted in bytes, of which a token has at least one. What the model is still to write is
counted at its limit, a token of the model as a token of the judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from fairwitness.drafts.expected import Expected, ExpectedDraft
from fairwitness.drafts.labelling import MAX_REPLY_TOKENS as MAX_LABEL_TOKENS
from fairwitness.drafts.labelling import STEPS_PER_PROMPT
from fairwitness.drafts.making import IMMEDIATE_TOKENS
from fairwitness.drafts.reading import MAX_REPLY_TOKENS
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.writing import MAX_CHOICE_TOKENS, MAX_CONCLUSION_TOKENS, SHOWN_CHARS
from fairwitness.judges.budget import MESSAGE_OVERHEAD_TOKENS, Prices
from fairwitness.judges.config import EndpointConfig, JudgeConfig
from fairwitness.judges.template import PromptTemplate, load_template
from fairwitness.text.prompts import choices_block

INSERTED_BYTES = 200
"""Allowance for the words around the choices in an inserted step."""
NUMBER_TOKENS = 5
"""Tokens of the number and the line break of a step that is shown to a judge."""


@dataclass(frozen=True)
class Bound:
    """Requests, and what they cost together, at most."""

    num: int = 0
    cost: float = 0.0

    def __add__(self, other: Bound) -> Bound:
        """Both together."""
        return Bound(self.num + other.num, self.cost + other.cost)


def judge_bound(study: DraftStudy, expected: Expected) -> Bound:
    """What the judge is asked at most; nothing where rules judge."""
    if not study.config.has_judge:
        return Bound()
    prices = prices_of(study.config.judge)
    return sum((_judged(study, draft, prices) for draft in expected.drafts), Bound())


def writer_bound(study: DraftStudy, expected: Expected) -> Bound:
    """What the writer is asked at most: a wrong choice and a conclusion for every draft, where it writes them."""
    config, prices, total = study.config, prices_of(study.config.writer), Bound()
    for draft in expected.drafts:
        if config.corrupts and config.corruptor == "writer":
            total += _asked(prices, 1, _size(draft, "draft_corruption", ("choice",)), MAX_CHOICE_TOKENS)
        if "plausible" in config.conclusions:
            shown = _size(draft, "draft_plausible", ("draft", "letter", "choice")) + 4 * SHOWN_CHARS
            total += _asked(prices, 1, shown, MAX_CONCLUSION_TOKENS)
    return total


def prices_of(config: JudgeConfig) -> Prices:
    """The prices of a judge or writer; zero for one without."""
    return config.prices if isinstance(config, EndpointConfig) else Prices(0.0, 0.0)


def _judged(study: DraftStudy, draft: ExpectedDraft, prices: Prices) -> Bound:
    config, limits, total = study.config, study.config.limits, Bound()
    num_steps = draft.num_tokens if draft.num_cot_steps is None else draft.num_cot_steps
    if config.decomposer == "judge":
        num = -(-num_steps // STEPS_PER_PROMPT)
        size = _size(draft, "draft_steps", ("cot_steps",))
        text = draft.num_tokens + NUMBER_TOKENS * num_steps
        total += _asked(prices, num, size, MAX_LABEL_TOKENS, text)
    if "judge" in config.conclusion_order:
        size = _size(draft, "draft_conclusion", ("text", "verdicts"))
        texts = (
            (draft.num_tokens, 0 if draft.is_read else 1),
            (limits.answer, 1 + draft.num_answers),
            (IMMEDIATE_TOKENS, draft.num_answers),
            (limits.continuation, draft.num_intra),
        )
        for length, num in texts:
            total += _asked(prices, num, size, MAX_REPLY_TOKENS, num * length)
    size = _size(draft, "draft_behaviour", ("inserted", "continuation", "verdicts")) + INSERTED_BYTES
    size += len(choices_block(draft.problem.choices).encode())
    num = draft.num_intra
    return total + _asked(prices, num, size, MAX_REPLY_TOKENS, num * limits.continuation)


def _asked(prices: Prices, num: int, size: int, max_tokens: int, num_text_tokens: int = 0) -> Bound:
    num_prompt = num * (size + MESSAGE_OVERHEAD_TOKENS) + num_text_tokens
    return Bound(num, prices.cost(num_prompt, num * max_tokens))


@cache
def _template(name: str, shown: tuple[str, ...]) -> PromptTemplate:
    return load_template(name, None, required=shown)


def _size(draft: ExpectedDraft, template: str, others: tuple[str, ...]) -> int:
    """Bytes of a prompt about a problem, without the texts of the model."""
    shown: Mapping[str, str] = {
        "question": draft.problem.question,
        "choices": choices_block(draft.problem.choices),
        "choice": max(draft.problem.choices, key=len),
        "letter": "A",
    }
    names = ("question", *(() if template == "draft_steps" else ("choices",)), *others)
    prompt = _template(template, names).fill({name: shown.get(name, "") for name in names})
    return len((prompt.system + prompt.user).encode())
