"""Logits, answers and log-probabilities against the plain Hugging Face forward pass and hand loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from scipy.special import logit
from torch import Tensor

from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import (
    Positions,
    TargetTokens,
    answers,
    batches_by_length,
    letter_answers,
    logits_at,
    next_token_logits,
    pad_right,
    sequence_logprobs,
    sequence_scores,
    target_log_odds,
    target_logprobs,
)
from tests.helpers.fur_tasks import random_ids
from tests.helpers.tiny_models import TINY_TYPES

LENGTHS = (3, 17, 9, 24, 1)


def _rows(lm: LanguageModel) -> list[tuple[int, ...]]:
    draw = random.Random(5)
    return [random_ids(draw, lm.facts.vocab_size, length) for length in LENGTHS]


@torch.no_grad()
def _plain_logits(lm: LanguageModel, ids: Sequence[int]) -> Tensor:
    logits_TV: Tensor = lm.model(input_ids=torch.tensor([list(ids)])).logits[0]
    return logits_TV.float()


@pytest.mark.parametrize("model_type", [*TINY_TYPES, "bloom", "falcon", "mpt", "gpt_neo"])
def test_padded_rows_give_the_logits_of_each_row_alone(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    rows = _rows(lm)
    row_of = [row for row, ids in enumerate(rows) for _ in ids]
    col_of = [col for ids in rows for col in range(len(ids))]
    with torch.no_grad():
        found = logits_at(lm.model, pad_right(rows), Positions(torch.tensor(row_of), torch.tensor(col_of)))
    expected = torch.cat([_plain_logits(lm, ids) for ids in rows])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-5)


def test_logits_come_in_the_order_of_the_positions(tiny_llama: LanguageModel) -> None:
    rows = _rows(tiny_llama)
    positions = Positions(torch.tensor([3, 1, 3, 0]), torch.tensor([20, 2, 5, 2]))
    found = logits_at(tiny_llama.model, pad_right(rows), positions)
    for logits_V, row, col in zip(found, *positions, strict=True):
        torch.testing.assert_close(logits_V, _plain_logits(tiny_llama, rows[row])[col], rtol=1e-5, atol=2e-5)


def test_soft_capping_after_the_output_embedding_still_happens(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("gemma2")
    cap = lm.model.config.final_logit_softcapping
    head = lm.model.get_output_embeddings()
    ids_BT, positions = torch.tensor([list(range(20, 30))]), Positions(torch.tensor([0]), torch.tensor([9]))
    uncapped = []
    with head.register_forward_hook(lambda _module, _args, output: uncapped.append(output)):
        found = logits_at(lm.model, ids_BT, positions)
    assert len(uncapped[0]) == 1
    torch.testing.assert_close(found, cap * torch.tanh(uncapped[0] / cap))


def test_the_model_is_left_without_a_hook_even_after_an_error(tiny_llama: LanguageModel) -> None:
    head = tiny_llama.model.get_output_embeddings()
    num_hooks = len(head._forward_pre_hooks)
    with pytest.raises(IndexError):
        logits_at(tiny_llama.model, torch.tensor([[20, 21]]), Positions(torch.tensor([0]), torch.tensor([2])))
    assert len(head._forward_pre_hooks) == num_hooks
    assert tiny_llama.model(input_ids=torch.tensor([[20, 21]])).logits.shape[1] == 2


def test_pad_right_fills_the_end_and_refuses_empty_rows() -> None:
    assert pad_right([[5], [6, 7, 8]]).tolist() == [[5, 0, 0], [6, 7, 8]]
    for rows in ([], [[1], []]):
        with pytest.raises(ValueError, match="at least one token"):
            pad_right(rows)


def test_letter_answers_are_a_softmax_over_the_letters_alone() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 3.0, -1.0], [4.0, 0.0, 0.0, 0.0, 5.0]])
    first, second = letter_answers(logits, [[1, 2, 4], [0, 3]])
    e = torch.e
    total = e**2 + e**1 + e**-1
    assert first.probs == pytest.approx([e**2 / total, e / total, e**-1 / total])
    assert first.mass == pytest.approx(total / (total + 1 + e**3))
    assert first.index == 0
    assert second.probs == pytest.approx([1 / (1 + e**-4), e**-4 / (1 + e**-4)])
    assert second.mass == pytest.approx((e**4 + 1) / (e**4 + 3 + e**5))


def test_letter_answers_of_ties_extremes_and_all_letters() -> None:
    (tied,) = letter_answers(torch.zeros(1, 4), [[2, 3, 1]])
    assert (tied.index, tied.probs) == (0, pytest.approx([1 / 3] * 3))
    (certain,) = letter_answers(torch.tensor([[0.0, 1e4, -1e4]]), [[0, 1]])
    assert (certain.probs, certain.mass, certain.index) == ((0.0, 1.0), 1.0, 1)
    (all_letters,) = letter_answers(torch.tensor([[1.0, 2.0]]), [[0, 1]])
    assert all_letters.mass == pytest.approx(1.0, abs=1e-6)
    assert all_letters.mass <= 1.0


def test_letter_answers_read_bfloat16_logits_in_float32() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    (found,) = letter_answers(logits, [[3, 7, 11]])
    assert found.probs == pytest.approx(torch.softmax(logits[0, [3, 7, 11]].double(), 0).tolist(), rel=1e-6)


def test_target_logprobs_pick_one_entry_per_row() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    expected = [2.0 - torch.logsumexp(logits[0], 0).item(), -torch.log(torch.tensor(3.0)).item()]
    assert target_logprobs(logits, torch.tensor([1, 2])).tolist() == pytest.approx(expected)


def test_log_odds_are_those_of_the_softmax_and_finite_for_a_sure_model() -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(1)) * 4
    target = torch.tensor([0, 39, 7, 7, 20, 3])
    probs = torch.softmax(logits.double(), 1)[range(6), target].numpy()
    assert target_log_odds(logits, target).numpy() == pytest.approx(logit(probs), rel=1e-5, abs=1e-5)
    sure = torch.tensor([[200.0, 0.0, 0.0], [200.0, 0.0, 0.0]])
    log_2 = torch.log(torch.tensor(2.0)).item()
    assert target_log_odds(sure, torch.tensor([0, 1])).tolist() == pytest.approx([200 - log_2, -200.0])


def test_log_odds_of_sequences_do_not_depend_on_the_batch(tiny_llama: LanguageModel) -> None:
    targets = _targets(tiny_llama)
    found = sequence_scores(tiny_llama.model, targets, max_tokens=10_000, score=target_log_odds)
    alone = sequence_scores(tiny_llama.model, targets, max_tokens=1, score=target_log_odds)
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-5)
    logprobs = sequence_logprobs(tiny_llama.model, targets, max_tokens=1)
    for part, expected in zip(alone, logprobs, strict=True):
        assert part.double().numpy() == pytest.approx(logit(expected.double().exp().numpy()), rel=1e-4, abs=1e-4)


def _targets(lm: LanguageModel) -> list[TargetTokens]:
    rows = _rows(lm)
    return [
        TargetTokens(rows[0], (1, 2)),
        TargetTokens(rows[1], ()),
        TargetTokens(rows[2], (8, 3)),
        TargetTokens(rows[3], tuple(range(1, 24))),
        TargetTokens(rows[4], ()),
    ]


def test_sequence_logprobs_equal_a_loop_over_tokens(tiny_llama: LanguageModel) -> None:
    targets = _targets(tiny_llama)
    for target, found in zip(targets, sequence_logprobs(tiny_llama.model, targets, max_tokens=64), strict=True):
        assert found.dtype == torch.float32
        expected = []
        for position in target.positions:
            logits_V = _plain_logits(tiny_llama, target.ids[:position])[-1].double()
            expected.append(torch.log_softmax(logits_V, 0)[target.ids[position]].item())
        assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_sequences_without_positions_give_empty_tensors(tiny_llama: LanguageModel) -> None:
    found = sequence_logprobs(tiny_llama.model, [TargetTokens((20, 21), ()), TargetTokens((22,), ())], max_tokens=8)
    assert [list(part.shape) for part in found] == [[0], [0]]
    assert sequence_logprobs(tiny_llama.model, [], max_tokens=8) == []


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma2"])
def test_results_do_not_depend_on_the_batch(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    rows, targets = _rows(lm), _targets(lm)
    letters = [(20, 30), (21, 31, 41), (22, 32), (23, 33, 43, 53), (24, 34)]
    alone = answers(lm.model, rows, letters, max_tokens=1)
    alone_logprobs = sequence_logprobs(lm.model, targets, max_tokens=1)
    alone_logits = next_token_logits(lm.model, rows, max_tokens=1)
    for max_tokens in (40, 10_000):
        for one, many in zip(alone, answers(lm.model, rows, letters, max_tokens=max_tokens), strict=True):
            assert many.index == one.index
            assert many.probs == pytest.approx(one.probs, rel=1e-5)
            assert many.mass == pytest.approx(one.mass, rel=1e-5)
        torch.testing.assert_close(
            sequence_logprobs(lm.model, targets, max_tokens=max_tokens), alone_logprobs, rtol=1e-5, atol=1e-6
        )
        torch.testing.assert_close(
            next_token_logits(lm.model, rows, max_tokens=max_tokens), alone_logits, rtol=1e-5, atol=2e-5
        )


def test_batches_by_length_hold_every_index_once_within_the_limit() -> None:
    draw = random.Random(0)
    lengths = [draw.randint(1, 50) for _ in range(200)]
    batches = batches_by_length(lengths, max_tokens=120)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert longest * len(batch) <= 120 or len(batch) == 1
    assert len(batches) < 60
    assert batches_by_length([7, 7, 7], max_tokens=1) == [[0], [1], [2]]
    assert batches_by_length([], max_tokens=5) == []
