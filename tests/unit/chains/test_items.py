"""Measurements of the base model, against plain forward passes and transformers' own generation."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from fairwitness.chains.config import CotConfig
from fairwitness.chains.items import (
    AnswerItem,
    CotItem,
    CotRequest,
    CotSteps,
    StepScoreItem,
)
from fairwitness.lm.config import EngineConfig
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import LetterAnswer
from tests.helpers.fur_reference import logprobs_of
from tests.helpers.fur_tasks import MAX_TOKENS, random_ids, random_question


def _engine(lm: LanguageModel, max_tokens: int) -> ModelEngine:
    return ModelEngine(lm, EngineConfig(max_tokens=max_tokens))


def _plain_answer(lm: LanguageModel, ids: tuple[int, ...], letter_ids: tuple[int, ...]) -> LetterAnswer:
    with torch.no_grad():
        letters = logprobs_of(lm.model, ids)[-1].double().exp()[list(letter_ids)]
    return LetterAnswer(tuple((letters / letters.sum()).tolist()), letters.sum().item(), int(letters.argmax()))


def _assert_same(found: LetterAnswer | None, expected: LetterAnswer) -> None:
    assert found is not None
    assert found.index == expected.index
    assert found.probs == pytest.approx(expected.probs, rel=1e-5)
    assert found.mass == pytest.approx(expected.mass, rel=1e-5)


def test_direct_answers_come_in_order(tiny_llama: LanguageModel) -> None:
    draw = random.Random(2)
    questions = tuple(random_question(draw, tiny_llama.facts.vocab_size) for _ in range(6))
    found = AnswerItem(questions).answer(_engine(tiny_llama, 20))
    for question, answer in zip(questions, found, strict=True):
        _assert_same(answer, _plain_answer(tiny_llama, question.ids, question.letter_ids))
    assert AnswerItem(()).answer(_engine(tiny_llama, 20)) == []


def _requests(lm: LanguageModel, lengths: tuple[int, ...] = (5, 12, 8)) -> tuple[CotRequest, ...]:
    draw, vocab_size = random.Random(4), lm.facts.vocab_size
    return tuple(
        CotRequest(random_ids(draw, vocab_size, n), random_ids(draw, vocab_size, 3), (20 + n, 50 + n)) for n in lengths
    )


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_cots_are_greedy_and_answered_after_the_suffix(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    requests = _requests(lm)
    outcomes = CotItem(requests, CotConfig(max_new_tokens=7)).answer(_engine(lm, MAX_TOKENS))
    for request, outcome in zip(requests, outcomes, strict=True):
        (expected,) = generate_greedy(lm, [request.prompt], 7, batch_size=1)
        assert (outcome.ids, outcome.finish, outcome.error) == (expected.ids, expected.finish, None)
        prompt = (*request.prompt, *outcome.ids, *request.suffix)
        _assert_same(outcome.answer, _plain_answer(lm, prompt, request.letter_ids))


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_a_request_that_fails_does_not_stop_the_others(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    context = lm.facts.context_length
    good, _, _ = _requests(lm)
    no_room_for_suffix = CotRequest((20,) * (context - 2), good.suffix, good.letter_ids)
    no_room_at_all = CotRequest((20,) * (context + 5), good.suffix, good.letter_ids)
    item = CotItem((no_room_for_suffix, good, no_room_at_all), CotConfig(max_new_tokens=4))
    first, second, third = item.answer(_engine(lm, MAX_TOKENS))
    (alone,) = CotItem((good,), item.cot).answer(_engine(lm, MAX_TOKENS))
    assert second.ids == alone.ids
    assert alone.answer is not None
    _assert_same(second.answer, alone.answer)
    assert first.answer is third.answer is None
    assert first.error is not None
    assert third.error is not None
    assert str(context) in first.error
    assert str(context) in third.error


def test_an_empty_cot_is_an_error(fresh_lm: Callable[[str], LanguageModel]) -> None:
    lm = fresh_lm("opt")
    with torch.no_grad():  # the head copies the last token's embedding: make EOS the answer to every prompt
        lm.model.get_output_embeddings().weight.zero_()
        lm.model.get_output_embeddings().weight[lm.facts.eos_ids[0]] = 1.0
        lm.model.get_decoder().final_layer_norm.bias.fill_(5.0)
    (outcome,) = CotItem(_requests(lm)[:1], CotConfig(max_new_tokens=4)).answer(_engine(lm, MAX_TOKENS))
    assert (outcome.ids, outcome.answer, outcome.error) == ((), None, "the CoT is empty: the model ended it at once")


def test_step_scores_are_mean_logprobs_of_the_step_given_all_before(tiny_llama: LanguageModel) -> None:
    draw, vocab_size = random.Random(6), tiny_llama.facts.vocab_size
    cots = (
        CotSteps(random_ids(draw, vocab_size, 20), ((6, 11), (11, 12), (12, 20))),
        CotSteps(random_ids(draw, vocab_size, 9), ((3, 9),)),
        CotSteps(random_ids(draw, vocab_size, 30), ((25, 28),)),
        CotSteps(random_ids(draw, vocab_size, 5), ()),
    )
    for max_tokens in (1, 64, 1_000):
        found = StepScoreItem(cots).answer(_engine(tiny_llama, max_tokens))
        assert [len(scores) for scores in found] == [3, 1, 1, 0]
        for cot, scores in zip(cots, found, strict=True):
            for (start, end), score in zip(cot.steps, scores, strict=True):
                with torch.no_grad():
                    logprobs = logprobs_of(tiny_llama.model, cot.ids[:end])
                values = [logprobs[p - 1, cot.ids[p]].item() for p in range(start, end)]
                assert score == pytest.approx(sum(values) / len(values), rel=1e-5)
