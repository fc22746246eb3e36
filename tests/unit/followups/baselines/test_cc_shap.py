"""CC-SHAP: Shapley values against all coalitions enumerated by hand; scores against scipy and hand-worked numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine

from fairwitness.errors import ItemError
from fairwitness.followups.baselines.cc_shap import (
    NO_ANSWER_ATTRIBUTION,
    NO_COT_ATTRIBUTION,
    Attribution,
    ShapItem,
    ShapRequest,
    cc_shap,
    mask_token,
    masked_game,
    mean_shares,
    question_tokens,
    shapley_values,
)
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import PromptEncoder, decode
from fairwitness.problems.problem import Problem
from tests.helpers.fur_tasks import engine_config, random_ids
from tests.helpers.tiny_tokenizers import byte_level_tokenizer, metaspace_tokenizer


def _engine(lm: LanguageModel, max_tokens: int) -> ModelEngine:
    return ModelEngine(lm, engine_config().model_copy(update={"max_tokens": max_tokens}))


PROMPT = (40, 41, 42, 43, 44, 45, 46)
TOKENS = (1, 2, 4, 5)
COT = (50, 51, 52)
MASK = 30


def enumerated(game: Callable[[Sequence[bool]], Sequence[float]], num_tokens: int) -> list[list[float]]:
    """Shapley values by their definition: for every token the weighted sum over all coalitions without it."""
    players = range(num_tokens)
    values = []
    for player in players:
        others = [p for p in players if p != player]
        total = np.zeros(len(game([False] * num_tokens)))
        for size in range(num_tokens):
            weight = math.factorial(size) * math.factorial(num_tokens - size - 1) / math.factorial(num_tokens)
            for coalition in combinations(others, size):
                without = [p in coalition for p in players]
                with_it = [shown or p == player for p, shown in enumerate(without)]
                total += weight * (np.asarray(game(with_it)) - np.asarray(game(without)))
        values.append(total.tolist())
    return values


@torch.no_grad()
def log_odds(lm: LanguageModel, prompt: Sequence[int], target: Sequence[int]) -> list[float]:
    """Log-odds of target tokens, one plain forward pass in float64 per call."""
    ids = [*prompt, *target]
    probs = torch.softmax(lm.model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
    chosen = [probs[len(prompt) + t - 1, token].item() for t, token in enumerate(target)]
    return [math.log(p / (1 - p)) for p in chosen]


def masked(shown: Sequence[bool]) -> list[int]:
    hidden = {place for place, is_shown in zip(TOKENS, shown, strict=True) if not is_shown}
    return [MASK if place in hidden else token for place, token in enumerate(PROMPT)]


def test_batched_values_equal_all_coalitions_evaluated_one_by_one(tiny_llama: LanguageModel) -> None:
    game = masked_game(tiny_llama, PROMPT, COT, TOKENS, MASK, max_tokens=64)
    found = shapley_values(game, len(TOKENS), max_evaluations=16, seed=0)
    expected = enumerated(lambda shown: log_odds(tiny_llama, masked(shown), COT), len(TOKENS))
    assert found.is_exact
    assert found.num_evaluations == 16
    assert found.values_NT == pytest.approx(np.array(expected), rel=1e-4, abs=1e-4)
    assert found.full_T == pytest.approx(log_odds(tiny_llama, PROMPT, COT), abs=1e-4)
    assert found.base_T == pytest.approx(log_odds(tiny_llama, masked([False] * 4), COT), abs=1e-4)


@pytest.mark.parametrize("max_evaluations", [9, 15, 16, 40])
def test_values_add_up_to_what_the_tokens_change(tiny_llama: LanguageModel, max_evaluations: int) -> None:
    game = masked_game(tiny_llama, PROMPT, COT, TOKENS, MASK, max_tokens=64)
    found = shapley_values(game, len(TOKENS), max_evaluations=max_evaluations, seed=3)
    assert found.is_exact == (max_evaluations >= 16)
    assert found.num_evaluations <= max_evaluations
    assert found.gap < 1e-9
    assert found.values_NT.sum(axis=0) == pytest.approx(found.full_T - found.base_T, abs=1e-9)
    assert np.abs(found.full_T - found.base_T).max() > 1e-3


def test_a_gap_is_seen() -> None:
    values = np.array([[1.0, 2.0], [0.5, 0.0]])
    assert Attribution(values, np.zeros(2), np.array([1.5, 2.5]), 4, True).gap == pytest.approx(0.5)


def interacting(masks_KN: np.ndarray) -> np.ndarray:
    """A game of seven tokens with interactions of up to three, and a second output that is the first one doubled."""
    x = masks_KN.astype(float)
    value = x @ np.arange(1.0, 8.0) + 3 * x[:, 0] * x[:, 1] - 5 * x[:, 2] * x[:, 3] * x[:, 4] + x[:, 5] * x[:, 6]
    return np.stack([value, 2 * value], axis=1)


def test_random_orders_come_close_to_the_exact_values() -> None:
    exact = shapley_values(interacting, 7, max_evaluations=128, seed=0)
    assert exact.is_exact
    one_by_one = enumerated(lambda shown: interacting(np.array([shown]))[0].tolist(), 7)
    assert exact.values_NT == pytest.approx(np.array(one_by_one), abs=1e-9)
    rough = shapley_values(interacting, 7, max_evaluations=100, seed=0)
    assert not rough.is_exact
    # Pairs and single effects are exact with an order and its reverse; the interaction of three is -5/3 each.
    assert rough.values_NT[[0, 1, 5, 6]] == pytest.approx(exact.values_NT[[0, 1, 5, 6]], abs=1e-9)
    assert rough.values_NT[2:5].sum(axis=0) == pytest.approx(exact.values_NT[2:5].sum(axis=0), abs=1e-9)
    estimates = [shapley_values(interacting, 7, max_evaluations=100, seed=s).values_NT for s in range(40)]
    assert np.mean(estimates, axis=0) == pytest.approx(exact.values_NT, abs=0.15)


def test_random_orders_depend_on_the_seed_alone() -> None:
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first = shapley_values(interacting, 7, max_evaluations=20, seed=1).values_NT
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    np.random.seed(6)  # noqa: NPY002
    assert np.array_equal(shapley_values(interacting, 7, max_evaluations=20, seed=1).values_NT, first)
    assert not np.array_equal(shapley_values(interacting, 7, max_evaluations=20, seed=2).values_NT, first)


def test_no_coalition_is_evaluated_twice_and_many_go_together() -> None:
    seen: list[bytes] = []
    calls = []

    def noted(masks_KN: np.ndarray) -> np.ndarray:
        calls.append(len(masks_KN))
        seen.extend(mask.tobytes() for mask in masks_KN)
        return interacting(masks_KN)

    found = shapley_values(noted, 7, max_evaluations=60, seed=0)
    assert len(seen) == len(set(seen)) == found.num_evaluations
    assert len(calls) <= 5
    calls.clear()
    shapley_values(noted, 7, max_evaluations=128, seed=0)
    assert len(calls) <= 128 / 10 + 2


def test_one_token_and_too_few_evaluations() -> None:
    def game(masks_KN: np.ndarray) -> np.ndarray:
        return 2.5 * masks_KN.astype(float)

    assert shapley_values(game, 1, max_evaluations=3, seed=0).values_NT.tolist() == [[2.5]]
    with pytest.raises(ItemError, match="has 7 tokens and needs 15 evaluations; raise max_evaluations"):
        shapley_values(interacting, 7, max_evaluations=14, seed=0)
    with pytest.raises(ItemError, match="no token"):
        shapley_values(interacting, 0, max_evaluations=14, seed=0)


def test_score_worked_by_hand() -> None:
    answer = np.array([2.0, -1.0, 1.0])
    cot = np.array([[1.0, 0.0, 3.0], [1.0, 0.0, -1.0], [2.0, 0.0, 0.0]])
    # Shares of the answer 1/2, -1/4, 1/4. Of the CoT: (1, 1, 2)/4 and (3, -1, 0)/4; the second token has none.
    mean = [(1 / 4 + 3 / 4) / 2, (1 / 4 - 1 / 4) / 2, (1 / 2 + 0) / 2]
    found = cc_shap(answer, cot)
    assert found.answer_N.tolist() == pytest.approx([0.5, -0.25, 0.25])
    assert found.cot_N.tolist() == pytest.approx(mean)
    top = 0.5 * mean[0] - 0.25 * mean[1] + 0.25 * mean[2]
    assert found.score == pytest.approx(top / math.sqrt(0.375) / math.sqrt(sum(x * x for x in mean)))
    assert found.score == pytest.approx(1 - cosine(answer, mean))
    assert found.reason is None


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_score_of_equal_and_opposite_attributions(scale: float) -> None:
    answer = np.array([0.1, 0.7, -0.3])
    assert cc_shap(answer, scale * answer[:, None] * [5.0, 1e-6]).score == pytest.approx(scale)


def test_undefined_scores_have_a_reason() -> None:
    nothing, something = np.zeros(3), np.array([[1.0], [0.0], [2.0]])
    of_answer = cc_shap(nothing, something)
    assert (of_answer.score, of_answer.reason) == (None, NO_ANSWER_ATTRIBUTION)
    assert np.isnan(of_answer.answer_N).all()
    assert of_answer.cot_N.tolist() == pytest.approx([1 / 3, 0, 2 / 3])
    of_cot = cc_shap(something[:, 0], np.zeros((3, 4)))
    assert (of_cot.score, of_cot.reason) == (None, NO_COT_ATTRIBUTION)
    # Two tokens of the CoT whose attributions cancel leave no direction either.
    cancelled = cc_shap(something[:, 0], np.array([[1.0, -1.0], [0.0, 0.0], [1.0, -1.0]]))
    assert (cancelled.score, cancelled.reason) == (None, NO_COT_ATTRIBUTION)
    assert mean_shares(np.zeros((3, 2))) is None
    with pytest.raises(ValueError, match="not finite"):
        cc_shap(np.array([np.nan]), np.array([[1.0]]))
    with pytest.raises(ValueError, match="do not fit"):
        cc_shap(np.array([1.0, 2.0]), np.array([[1.0]]))


def requests(lm: LanguageModel) -> list[ShapRequest]:
    import random

    draw = random.Random(4)
    found = []
    for n in range(3):
        question = random_ids(draw, lm.facts.vocab_size, 9 + n)
        cot_prompt = (*question[:8], *random_ids(draw, lm.facts.vocab_size, 4))
        cot = random_ids(draw, lm.facts.vocab_size, 5 + n)
        found.append(ShapRequest(question, 60 + n, cot_prompt, cot, (2, 3, 5, 6, 7), MASK, (n, n + 10)))
    return found


def test_request_in_the_worker_equals_the_enumeration(tiny_llama: LanguageModel) -> None:
    one = requests(tiny_llama)[0]
    engine = ModelEngine(tiny_llama, engine_config())
    (found,) = engine.run(ShapItem((one,), 32))

    def game(prompt: Sequence[int], target: Sequence[int], shown: Sequence[bool]) -> list[float]:
        hidden = {place for place, is_shown in zip(one.tokens, shown, strict=True) if not is_shown}
        return log_odds(tiny_llama, [MASK if p in hidden else t for p, t in enumerate(prompt)], target)

    answer = np.array(enumerated(lambda shown: game(one.question, [one.answer_id], shown), 5))[:, 0]
    cot = np.array(enumerated(lambda shown: game(one.cot_prompt, one.cot_ids, shown), 5))
    shares = (cot / np.abs(cot).sum(axis=0)).mean(axis=1)
    assert found.error is None
    assert found.is_exact
    assert found.num_evaluations == 64
    assert list(found.answer) == pytest.approx((answer / np.abs(answer).sum()).tolist(), abs=1e-4)
    assert list(found.cot) == pytest.approx(shares.tolist(), abs=1e-4)
    assert found.score == pytest.approx(1 - cosine(answer, shares), abs=1e-4)


@pytest.mark.parametrize("max_evaluations", [25, 32])
def test_batch_of_one_equals_batch_of_many(tiny_llama: LanguageModel, max_evaluations: int) -> None:
    many = requests(tiny_llama)
    together = ShapItem(tuple(many), max_evaluations).answer(_engine(tiny_llama, 512))
    for one, expected in zip(many, together, strict=True):
        for max_tokens in (1, 512):
            (alone,) = ShapItem((one,), max_evaluations).answer(_engine(tiny_llama, max_tokens))
            assert alone.score == pytest.approx(expected.score, abs=1e-5)
            assert alone.cot == pytest.approx(expected.cot, abs=1e-5)
            assert alone.num_evaluations == expected.num_evaluations


def test_request_that_cannot_be_explained_fails_alone(tiny_llama: LanguageModel) -> None:
    good, other, _ = requests(tiny_llama)
    bad = ShapRequest(other.question, 60, other.cot_prompt, other.cot_ids, (), MASK, (0, 1))
    found = ShapItem((bad, good), 32).answer(_engine(tiny_llama, 512))
    assert found[0].error == "the question has no token"
    assert found[0].score is None
    assert found[1].error is None


PROBLEM = Problem("p", "Where does the red fox sleep?", ("in a den", "in a nest"), "A", "d")


@pytest.mark.parametrize("style", ["plain", "chat"])
@pytest.mark.parametrize("make", [byte_level_tokenizer, metaspace_tokenizer])
def test_question_tokens_are_question_and_choices(make: Callable[..., object], style: str) -> None:
    encoder = PromptEncoder(make(), style)
    tokens = question_tokens(encoder, PROBLEM)
    direct, cot = encoder.direct(PROBLEM), encoder.cot(PROBLEM)
    assert list(tokens) == list(range(tokens[0], tokens[-1] + 1))
    for prompt in (direct, cot):
        said = decode(encoder.tokenizer, [prompt[place] for place in tokens])
        assert said.strip() == "Where does the red fox sleep?\n\nChoices:\n(A): in a den\n(B): in a nest"
    assert direct != cot


def test_question_that_is_not_in_its_prompt_is_refused() -> None:
    class Lower(PromptEncoder):
        def direct(self, problem: object) -> list[int]:
            return [*super().direct(PROBLEM)][:9]

    with pytest.raises(ItemError, match="not found in the tokens of its prompt"):
        question_tokens(Lower(byte_level_tokenizer(), "plain"), PROBLEM)


def test_mask_token_is_the_tokenizers_own_or_dots() -> None:
    tokenizer = byte_level_tokenizer()
    encoder = PromptEncoder(tokenizer, "plain")
    assert decode(tokenizer, [mask_token(encoder)]) in ("...", ".", "..")
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    assert decode(tokenizer, [mask_token(encoder)]) == "<mask>"
