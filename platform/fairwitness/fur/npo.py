"""The unlearning objective: negative preference optimisation with a KL term on a retain set. Pure functions.

Shape legend: N positions, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

KlDirection = Literal["policy_from_reference", "reference_from_policy"]


def npo_loss(logprob: Tensor, ref_logprob: Tensor, *, beta: float) -> Tensor:
    """Negative preference optimisation of sequences, elementwise.

    `2/β · log(1 + (π_θ/π_ref)^β)`; at π_θ = π_ref it is `(2/β)·ln 2`, and it falls to 0 as π_θ does.

    Args:
        logprob: Log-probability of each forgotten sequence under the policy, in nats, any shape.
        ref_logprob: The same under the reference, same shape; no gradient flows into it.
        beta: Inverse temperature, positive.

    Source: FUR, Eq. 7 (per sequence).
    """
    return (2.0 / beta) * F.softplus(beta * (logprob - ref_logprob.detach()))


def kl_divergence(logprobs_NV: Tensor, ref_logprobs_NV: Tensor, *, direction: KlDirection) -> Tensor:
    """KL divergence in nats at each position (N,); it and its gradient are exactly 0 where policy and reference agree.

    Args:
        logprobs_NV: Log-probabilities of the policy, normalised. The first derivative is right, a second one is not.
        ref_logprobs_NV: Log-probabilities of the reference; no gradient flows into them.
        direction: `policy_from_reference` is D(π_θ ‖ π_ref), as in the paper; `reference_from_policy` is
            D(π_ref ‖ π_θ), as in the published code.

    Source: FUR, Eq. 8.
    """
    with torch.no_grad():
        if direction == "policy_from_reference":
            value_N, slope_NV, _ = _divergence(logprobs_NV, ref_logprobs_NV)
        else:
            value_N, _, slope_NV = _divergence(ref_logprobs_NV, logprobs_NV)
    # Adds 0, and the slope as gradient: autograd would keep five more tensors of the size of the logits.
    linear_N = (slope_NV * logprobs_NV).sum(dim=-1)
    return value_N + (linear_N - linear_N.detach())


class _Divergence(NamedTuple):
    value_N: Tensor
    slope_p_NV: Tensor
    slope_q_NV: Tensor


def _divergence(log_p_NV: Tensor, log_q_NV: Tensor) -> _Divergence:
    # Σ (p·log(p/q) + q - p), since both sum to 1, and its slopes along log p and log q. The rounding of p·log(p/q)
    # alone is as large as a divergence of 1e-7 nats, and its slope at equality is rounding, which AdamW scales up to
    # whole updates; here both cancel.
    ratio_NV, p_NV = log_p_NV - log_q_NV, log_p_NV.exp()
    gap_NV = log_q_NV.exp() - p_NV
    near_NV = torch.expm1(-ratio_NV.clamp(min=-1.0)).mul_(p_NV)
    slope_p_NV = p_NV.mul_(ratio_NV)
    value_N = (slope_p_NV + torch.where(ratio_NV < -1.0, gap_NV, near_NV)).sum(dim=-1)
    return _Divergence(value_N, slope_p_NV, gap_NV)


def linear_decay(iteration: int, num_iterations: int) -> float:
    """Factor on the learning rate for update `iteration` (0-based): 1 at first, 1/n at the last of n."""
    return 1.0 - iteration / num_iterations


def segment_sums(values_N: Tensor, segment_N: Tensor, num_segments: int) -> Tensor:
    """Sums of values by segment number (num_segments,); a segment without values sums to 0."""
    return torch.zeros(num_segments, dtype=values_N.dtype, device=values_N.device).index_add(0, segment_N, values_N)
