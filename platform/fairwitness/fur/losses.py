"""What an unlearning objective is, and the loss terms that several objectives share. Pure functions.

Shape legend: W forgotten sequences, N positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fairwitness.fur.config import KlDirection


class Needs(NamedTuple):
    """What an objective reads; nothing else is computed or held in memory.

    Attributes:
        reference: Whether the forgotten sequences' log-probabilities under the reference are read.
        retain: `divergence`: whole distributions and those of the reference, at all positions of the recipe's `retain`.
            Where policy and reference are equal, as in the first pass, value and gradient must be 0: that pass is not
            differentiated. `targets`: whole distributions and the content tokens that the text has there; no reference.
    """

    reference: bool
    retain: Literal["divergence", "targets"]


class Forgotten(NamedTuple):
    """The sequences of one packed batch that are to be forgotten, of whichever tasks they are.

    Attributes:
        logprob_W: Log-probability of each sequence's tokens, summed, in nats.
        ref_logprob_W: The same under the reference, without gradient; empty unless `Needs.reference`.
        num_tokens_W: Number of those tokens, as a float.
    """

    logprob_W: Tensor
    ref_logprob_W: Tensor
    num_tokens_W: Tensor


class Retained(NamedTuple):
    """The positions of one packed batch at which the model is to stay as it is.

    Attributes:
        logprobs_NV: Log-probabilities of the next token.
        ref_logprobs_NV: The same under the reference, without gradient; empty unless `Needs.retain` is `divergence`.
        target_N: The token that comes next; empty unless `Needs.retain` is `targets`.
    """

    logprobs_NV: Tensor
    ref_logprobs_NV: Tensor
    target_N: Tensor


class Terms(NamedTuple):
    """What an objective gives, by name: a value for each sequence (W,) or position (N,).

    Attributes:
        losses: In nats. A task's loss is its mean over the task's sequences or positions, times its coefficient.
        metrics: Values to show beside them, averaged in the same way; they have no gradient.
    """

    losses: Mapping[str, Tensor]
    metrics: Mapping[str, Tensor] = {}


class Objective(Protocol):
    """An unlearning objective: losses and metrics by name, elementwise; the runtime reduces and weighs them.

    Attributes:
        needs: What it reads.
    """

    needs: ClassVar[Needs]

    def forget(self, given: Forgotten) -> Terms:
        """Losses that fall as the sequences become less probable."""
        ...

    def retain(self, given: Retained) -> Terms:
        """Losses that keep the model as it is elsewhere."""
        ...

    def at_start(self) -> Mapping[str, float]:
        """The value of each loss before the first update, where it is known for every model; the self-checks use it."""
        ...


def nll(logprobs_NV: Tensor, target_N: Tensor) -> Tensor:
    """Negative log-likelihood of one target per position (N,), in nats."""
    return -logprobs_NV.gather(1, target_N[:, None]).squeeze(1)


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
