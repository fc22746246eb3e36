"""The unlearning losses against their literal formulas, torch.distributions and numbers worked by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical
from torch.distributions import kl_divergence as torch_kl

from fairwitness.fur.config import KlDirection
from fairwitness.fur.losses import kl_divergence, npo_loss
from fairwitness.fur.objective import segment_sums

DIRECTIONS = get_args(KlDirection)


def _logprobs(seed: int, *, spread: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    logits = torch.randn(6, 11, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.log_softmax(spread * logits, dim=-1).to(dtype)


def _literal_npo(logprob: Tensor, ref_logprob: Tensor, beta: float) -> Tensor:
    return (2.0 / beta) * torch.log(1.0 + (logprob.exp() / ref_logprob.exp()) ** beta)


@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
def test_npo_at_equality_is_two_over_beta_times_ln_two(beta: float) -> None:
    logprob = torch.tensor([-0.5, -30.0, -400.0])
    torch.testing.assert_close(npo_loss(logprob, logprob, beta=beta), torch.full((3,), 2.0 / beta * math.log(2.0)))


def test_npo_numbers_worked_by_hand() -> None:
    # π/ref = 1/2, β = 1: 2·ln(1 + 1/2); π/ref = 4, β = 1/2: 4·ln(1 + 2); π/ref = 2^-10, β = 0.1: 20·ln(1 + 1/2).
    ln2 = math.log(2.0)
    assert npo_loss(torch.tensor(-3 * ln2), torch.tensor(-2 * ln2), beta=1.0).item() == pytest.approx(0.8109302162)
    assert npo_loss(torch.tensor(-1 * ln2), torch.tensor(-3 * ln2), beta=0.5).item() == pytest.approx(4.3944491547)
    assert npo_loss(torch.tensor(-11 * ln2), torch.tensor(-1 * ln2), beta=0.1).item() == pytest.approx(8.1093021622)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_npo_value_and_gradient_are_those_of_the_literal_formula(beta: float) -> None:
    ref = torch.tensor([-0.1, -3.0, -12.0, -40.0, -7.0], dtype=torch.float64)
    change = torch.tensor([0.05, -2.0, 6.0, 20.0, -30.0], dtype=torch.float64)
    ours, theirs = ((ref + change).requires_grad_() for _ in range(2))
    loss, literal = npo_loss(ours, ref, beta=beta), _literal_npo(theirs, ref, beta)
    torch.testing.assert_close(loss, literal)
    loss.sum().backward()
    literal.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda x: npo_loss(x, ref, beta=beta), (ours.detach().requires_grad_(),))


def test_npo_limits() -> None:
    ref = torch.zeros(3, dtype=torch.float64)
    logprob = torch.tensor([-1e6, 1e6, 0.0], dtype=torch.float64, requires_grad=True)
    loss = npo_loss(logprob, ref, beta=0.1)
    loss.sum().backward()
    assert logprob.grad is not None
    # Forgotten: no loss and no push. Far above the reference: twice the log ratio, pushed at full strength 2.
    torch.testing.assert_close(loss.detach(), torch.tensor([0.0, 2e6, 20 * math.log(2)], dtype=torch.float64))
    torch.testing.assert_close(logprob.grad, torch.tensor([0.0, 2.0, 1.0], dtype=torch.float64))


def test_no_gradient_flows_into_the_reference() -> None:
    logprob, ref = (torch.tensor([-2.0], requires_grad=True) for _ in range(2))
    npo_loss(logprob, ref, beta=0.1).sum().backward()
    assert ref.grad is None
    assert logprob.grad is not None
    for direction in DIRECTIONS:
        policy, reference = (_logprobs(seed).requires_grad_() for seed in (0, 1))
        kl_divergence(policy, reference, direction=direction).sum().backward()
        assert reference.grad is None
        assert policy.grad is not None


def _categorical_kl(logits: Tensor, ref: Tensor, direction: str) -> Tensor:
    policy, reference = Categorical(logits=logits), Categorical(logits=ref)
    return torch_kl(policy, reference) if direction == "policy_from_reference" else torch_kl(reference, policy)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_kl_value_and_gradient_are_those_of_torch_distributions(direction: KlDirection, spread: float) -> None:
    ref = _logprobs(1, spread=spread)
    logits, same_logits = ((spread * _logprobs(2)).requires_grad_() for _ in range(2))
    found = kl_divergence(torch.log_softmax(logits, dim=-1), ref, direction=direction)
    expected = _categorical_kl(same_logits, ref, direction)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, same_logits.grad, rtol=1e-7, atol=1e-12)


def test_kl_numbers_worked_by_hand() -> None:
    # p = (1/2, 1/2), q = (1/4, 3/4): D(p‖q) = ½ ln 2 + ½ ln ⅔ = ½ ln(4/3), D(q‖p) = ¼ ln ½ + ¾ ln 1.5.
    policy, ref = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    forward = kl_divergence(policy, ref, direction="policy_from_reference")
    backward = kl_divergence(policy, ref, direction="reference_from_policy")
    assert forward.item() == pytest.approx(0.1438410362, rel=1e-6)
    assert backward.item() == pytest.approx(0.1308120336, rel=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_kl_and_its_gradient_are_exactly_zero_at_equality(direction: KlDirection) -> None:
    logprobs = _logprobs(3, spread=5.0, dtype=torch.float32).requires_grad_()
    kl = kl_divergence(logprobs, logprobs, direction=direction)
    kl.sum().backward()
    assert kl.tolist() == [0.0] * 6
    assert logprobs.grad is not None
    assert logprobs.grad.abs().max() == 0.0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("change", [1e-3, 1e-4])
def test_a_small_kl_keeps_its_digits_in_float32(direction: KlDirection, change: float) -> None:
    logits, noise = _logprobs(4), _logprobs(5)
    policy, ref = torch.log_softmax(logits + change * noise, dim=-1), torch.log_softmax(logits, dim=-1)
    expected = _categorical_kl(policy, ref, direction)
    assert expected.max() < 1e-5
    found = kl_divergence(policy.float(), ref.float(), direction=direction)
    torch.testing.assert_close(found.double(), expected, rtol=30 * 1e-7 / change, atol=0.0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_kl_of_almost_disjoint_distributions_is_finite(direction: KlDirection) -> None:
    logits = torch.tensor([[0.0, 300.0], [300.0, 0.0]], requires_grad=True)
    logprobs = torch.log_softmax(logits, dim=-1)
    kl = kl_divergence(logprobs, logprobs.detach().flip(0), direction=direction)
    kl.sum().backward()
    torch.testing.assert_close(kl.detach(), torch.tensor([300.0, 300.0]))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_segment_sums_add_by_number_and_leave_absent_ones_zero() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 8.0], requires_grad=True)
    sums = segment_sums(values, torch.tensor([2, 0, 2, 2]), 4)
    assert sums.tolist() == [2.0, 0.0, 13.0, 0.0]
    (sums * torch.tensor([10.0, 1.0, 3.0, 1.0])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [3.0, 10.0, 3.0, 3.0]
