"""Measurements of the base model: direct answers, CoTs with the answers given them, and probabilities of steps."""

from __future__ import annotations

from fairwitness.fur.items import AnswerItem, CotItem, CotOutcome, CotRequest, StepScoreItem
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import LetterAnswer, TargetTokens, answers, sequence_logprobs


def answer_directly(lm: LanguageModel, item: AnswerItem, *, max_tokens: int) -> list[LetterAnswer]:
    """The base model's answer to each question, without a CoT."""
    prompts = [q.ids for q in item.questions]
    return answers(lm.model, prompts, [q.letter_ids for q in item.questions], max_tokens=max_tokens)


def write_cots(lm: LanguageModel, item: CotItem, *, max_tokens: int) -> list[CotOutcome]:
    """Greedy CoTs and the answers given them, batched; a request that fails does not stop the others.

    Source: FUR §5 (two-step prompting), App. D.
    """
    generated = generate_greedy(
        lm,
        [list(r.prompt) for r in item.requests],
        item.cot.max_new_tokens,
        batch_size=len(item.requests),
        num_begun=[r.num_begun for r in item.requests],
    )
    outcomes = [
        _outcome(lm, request, tuple(g.ids), g.finish, g.error)
        for request, g in zip(item.requests, generated, strict=True)
    ]
    good = [i for i, outcome in enumerate(outcomes) if outcome.error is None]
    prompts = [(*item.requests[i].prompt, *outcomes[i].ids, *item.requests[i].suffix) for i in good]
    found = answers(lm.model, prompts, [item.requests[i].letter_ids for i in good], max_tokens=max_tokens)
    for i, answer in zip(good, found, strict=True):
        outcomes[i] = CotOutcome(outcomes[i].ids, outcomes[i].finish, answer, None)
    return outcomes


def _outcome(
    lm: LanguageModel, request: CotRequest, ids: tuple[int, ...], finish: str | None, error: str | None
) -> CotOutcome:
    length = len(request.prompt) + len(ids) + len(request.suffix)
    if error is None and not ids and not request.num_begun:
        error = "the CoT is empty: the model ended it at once"
    if error is None and length > lm.facts.context_length:
        error = (
            f"prompt, CoT and question have {length} tokens, the model's context holds {lm.facts.context_length}; "
            "lower cot.max_new_tokens"
        )
    return CotOutcome(ids, finish, None, error)


def score_steps(lm: LanguageModel, item: StepScoreItem, *, max_tokens: int) -> list[list[float]]:
    """Mean log-probability (nats per token) of each step of each CoT, given everything before it.

    Source: FUR, Eq. 1, length-normalised as exp(mean log p).
    """
    targets = [TargetTokens(cot.ids, [p for a, b in cot.steps for p in range(a, b)]) for cot in item.cots]
    scores = []
    for cot, logprobs in zip(item.cots, sequence_logprobs(lm.model, targets, max_tokens=max_tokens), strict=True):
        parts = logprobs.split([b - a for a, b in cot.steps])
        scores.append([float(part.mean()) for part in parts])
    return scores
