"""The one place where probabilities are read from a model.

Token ids go in, float32 log-softmax comes out. Rows are padded on the right and no mask is given: attention is causal,
so padding can change nothing that stands before it, and only the positions asked for reach the output embedding.

Shape legend: B rows, T tokens, N scored positions, V vocabulary, K choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairwitness.lm.grouped import shared_out
from fairwitness.lm.last_layer import only_at

CALL_TOKENS = 256
"""Tokens whose arithmetic takes about as long as what a forward pass costs besides."""
PAD_ID = 0
"""Fills the right of short rows. Any valid id does: causal attention never looks at it."""


TargetScore = Callable[[Tensor, Tensor], Tensor]
"""Takes logits (N, V) and a target per position (N,), gives a score per position (N,)."""


class Positions(NamedTuple):
    """Where logits are read: row and column of each of N positions in a padded batch."""

    row_N: Tensor
    col_N: Tensor


class TargetTokens(NamedTuple):
    """A token sequence and the positions whose probability is asked for, each at least 1."""

    ids: Sequence[int]
    positions: Sequence[int]


@dataclass(frozen=True)
class LetterAnswer:
    """A model's answer to a lettered question.

    Attributes:
        probs: Probability of each letter, softmax in float32 over the letters alone; they sum to 1.
        mass: Probability of all letters together under the full softmax, 0 to 1.
        index: The most probable choice, 0 for A; the first one where several are equal.
    """

    probs: tuple[float, ...]
    mass: float
    index: int


def pad_right(rows: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Tensor:
    """Rows of ids as one tensor (B, T), short rows filled on the right.

    Raises:
        ValueError: There is no row, or a row is empty.
    """
    if not rows or not all(rows):
        raise ValueError("every row needs at least one token")
    length = max(map(len, rows))
    padded = [[*row, *[PAD_ID] * (length - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=device)


def logits_at(
    model: nn.Module,
    ids_BT: Tensor,
    positions: Positions,
    *,
    rows_K: Sequence[int] | None = None,
    last: Sequence[nn.Module] = (),
) -> Tensor:
    """Float32 logits (N, V) that follow the tokens at the given positions.

    The output embedding runs on these N positions only; whatever the architecture does after it (soft-capping, scaling)
    still happens.

    Args:
        model: The decoder.
        ids_BT: Rows, padded on the right.
        positions: The N positions.
        rows_K: Rows of each variant of a grouped model; None where it has none, or equally many of each.
        last: Modules of the last layer that run on these positions only as well (see `last_modules`).
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    with ExitStack() as stack:
        stack.enter_context(_only(head, positions))
        if rows_K is not None:
            stack.enter_context(shared_out(model, rows_K))
        stack.enter_context(only_at(last, *positions, ids_BT.shape, rows_K))
        output = model(input_ids=ids_BT, use_cache=False)
    logits_NV: Tensor = output.logits
    return logits_NV.float().reshape(len(positions.row_N), -1)


@contextmanager
def _only(head: nn.Module, positions: Positions) -> Iterator[None]:
    def gather(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][positions.row_N, positions.col_N], *args[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()


def letter_answers(logits_NV: Tensor, letter_ids: Sequence[Sequence[int]]) -> list[LetterAnswer]:
    """Reads answers from the logits after the cue `… answer is (`, one per row.

    `letter_ids` has, for each row, the ids of its letters as the tokenizer gives them in that context.
    """
    logits_NV = logits_NV.detach().float()
    most = max(map(len, letter_ids))
    padded = torch.tensor([[*ids, *[0] * (most - len(ids))] for ids in letter_ids], device=logits_NV.device)
    absent = torch.tensor([[k >= len(ids) for k in range(most)] for ids in letter_ids], device=logits_NV.device)
    letters_NK = logits_NV.gather(1, padded).masked_fill(absent, -torch.inf)
    probs_NK = torch.softmax(letters_NK, dim=1).cpu()
    mass_N = (letters_NK.logsumexp(dim=1) - logits_NV.logsumexp(dim=1)).exp().clamp(max=1.0).cpu()
    rows = zip(probs_NK, mass_N, letter_ids, strict=True)
    return [LetterAnswer(tuple(p[: len(ids)].tolist()), float(m), int(p.argmax())) for p, m, ids in rows]


def target_logprobs(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    """Log-probability in nats of one target per position: float32 log-softmax, then the target's entry (N,)."""
    return torch.log_softmax(logits_NV.float(), dim=-1).gather(1, target_N[:, None]).squeeze(1)


def target_log_odds(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    """Log-odds in nats, log p/(1 - p), of one target per position against all other tokens (N,).

    The target's logit minus the log-sum-exp of the others, in float32: finite however sure the model is, where 1 - p
    itself would round to 0.
    """
    logits_NV = logits_NV.float()
    target_N1 = target_N[:, None]
    others_N = logits_NV.scatter(1, target_N1, -torch.inf).logsumexp(dim=1)
    return logits_NV.gather(1, target_N1).squeeze(1) - others_N


def batches_by_length(lengths: Sequence[int], *, max_tokens: int, call_tokens: float = CALL_TOKENS) -> list[list[int]]:
    """Indices in batches of similar length, each of at most `max_tokens` padded tokens (or one row), longest first.

    Of all ways to cut the rows, sorted by length, into batches, this is one with the fewest padded tokens, where each
    batch counts `call_tokens` more.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    cost, start_of = [0.0], [0]
    for end in range(1, len(order) + 1):
        best, chosen = math.inf, end - 1
        for start in range(end - 1, -1, -1):
            padded = lengths[order[start]] * (end - start)
            if padded > max_tokens and end - start > 1:
                break
            if cost[start] + padded + call_tokens < best:
                best, chosen = cost[start] + padded + call_tokens, start
        cost.append(best)
        start_of.append(chosen)
    batches, end = [], len(order)
    while end:
        batches.append(order[start_of[end] : end])
        end = start_of[end]
    return batches[::-1]


@torch.no_grad()
def answers(
    model: nn.Module, prompts: Sequence[Sequence[int]], letter_ids: Sequence[Sequence[int]], *, max_tokens: int
) -> list[LetterAnswer]:
    """The answer after each prompt, in the order of the prompts."""
    logits = next_token_logits(model, prompts, max_tokens=max_tokens)
    return [letter_answers(row_V[None], [ids])[0] for row_V, ids in zip(logits, letter_ids, strict=True)]


@torch.no_grad()
def next_token_logits(model: nn.Module, prompts: Sequence[Sequence[int]], *, max_tokens: int) -> list[Tensor]:
    """Float32 logits (V,) of the token after each prompt, on the CPU, in the order of the prompts."""
    device = next(model.parameters()).device
    result: list[Tensor] = [torch.empty(0)] * len(prompts)
    for batch in batches_by_length([len(ids) for ids in prompts], max_tokens=max_tokens):
        ids_BT = pad_right([prompts[i] for i in batch], device)
        rows = torch.arange(len(batch), device=device)
        last = torch.tensor([len(prompts[i]) - 1 for i in batch], device=device)
        logits_NV = logits_at(model, ids_BT, Positions(rows, last)).cpu()
        for i, logits_V in zip(batch, logits_NV, strict=True):
            result[i] = logits_V
    return result


def sequence_logprobs(model: nn.Module, targets: Sequence[TargetTokens], *, max_tokens: int) -> list[Tensor]:
    """Log-probabilities in nats (one tensor per sequence, float32) of the tokens at the positions asked for.

    Each is conditioned on everything before it in its own sequence. A sequence without positions gives an empty tensor.
    """
    return sequence_scores(model, targets, max_tokens=max_tokens, score=target_logprobs)


@torch.no_grad()
def sequence_scores(
    model: nn.Module, targets: Sequence[TargetTokens], *, max_tokens: int, score: TargetScore
) -> list[Tensor]:
    """As `sequence_logprobs`, with another score of a token than its log-probability, such as `target_log_odds`."""
    device = next(model.parameters()).device
    result: list[Tensor] = [torch.empty(0)] * len(targets)
    for batch in batches_by_length([len(t.ids) for t in targets], max_tokens=max_tokens):
        rows = [b for b, i in enumerate(batch) for _ in targets[i].positions]
        cols = [p - 1 for i in batch for p in targets[i].positions]
        wanted = [targets[i].ids[p] for i in batch for p in targets[i].positions]
        if not wanted:
            continue
        positions = Positions(torch.tensor(rows, device=device), torch.tensor(cols, device=device))
        logits_NV = logits_at(model, pad_right([targets[i].ids for i in batch], device), positions)
        scores_N = score(logits_NV, torch.tensor(wanted, device=device)).cpu()
        parts = scores_N.split([len(targets[i].positions) for i in batch])
        for i, part in zip(batch, parts, strict=True):
            result[i] = part
    return result
