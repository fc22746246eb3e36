"""Rows of several variants, each block times its own variant's matrix, whatever the sizes of the blocks.

Shape legend: K variants, M rows, I inner width, D outer width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn


def by_variant(
    rows: Tensor, weight_K: nn.Parameter, share_K: Sequence[int] | None, *, transposed: bool = False
) -> Tensor:
    """The k-th block of rows times the k-th matrix; computes in the type of the rows.

    Args:
        rows: Any shape with I last. All rows of variant 0 come first.
        weight_K: The matrices (K, I, D).
        share_K: Size of each block relative to the others; None means equal blocks.
        transposed: Whether the matrices are kept as (K, D, I).
    """
    inner, outer = weight_K.shape[1:] if not transposed else reversed(weight_K.shape[1:])
    if share_K is None or (share_K[0] and len(set(share_K)) == 1):
        weights_KID = weight_K.to(rows.dtype)
        weights_KID = weights_KID.transpose(1, 2) if transposed else weights_KID
        out = torch.bmm(rows.reshape(len(weight_K), -1, inner), weights_KID)
    else:
        out = _Ragged.apply(  # type: ignore[no-untyped-call]
            rows.reshape(-1, inner), weight_K, tuple(share_K), transposed
        )
    return out.view(*rows.shape[:-1], outer)


class _Ragged(torch.autograd.Function):
    """The product block by block.

    Gradients of the matrices are added to `weight_K.grad` directly: handed to autograd they would be a tensor of all K
    matrices for each pass, most of it 0.
    """

    @staticmethod
    def forward(
        ctx: Any, rows_MI: Tensor, weight_K: nn.Parameter, share_K: tuple[int, ...], transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(rows_MI)
        ctx.weight_K, ctx.share_K, ctx.transposed = weight_K, share_K, transposed
        out_MD = rows_MI.new_empty(len(rows_MI), weight_K.shape[1 if transposed else 2])
        for k, block in _blocks(share_K, len(rows_MI)):
            matrix_ID = _matrix(weight_K, k, transposed, rows_MI.dtype)
            torch.mm(rows_MI[block], matrix_ID, out=out_MD[block])
        return out_MD

    @staticmethod
    def backward(ctx: Any, grad_MD: Tensor) -> tuple[Tensor | None, None, None, None]:
        (rows_MI,) = ctx.saved_tensors
        grad_MI = torch.empty_like(rows_MI) if ctx.needs_input_grad[0] else None
        if ctx.weight_K.grad is None:
            ctx.weight_K.grad = torch.zeros_like(ctx.weight_K)
        for k, block in _blocks(ctx.share_K, len(rows_MI)):
            if grad_MI is not None:
                matrix_ID = _matrix(ctx.weight_K, k, ctx.transposed, rows_MI.dtype)
                torch.mm(grad_MD[block], matrix_ID.T, out=grad_MI[block])
            left, right = (grad_MD, rows_MI) if ctx.transposed else (rows_MI, grad_MD)
            _add_product(ctx.weight_K.grad[k], left[block].T, right[block])
        return grad_MI, None, None, None


def _blocks(share_K: Sequence[int], num_rows: int) -> Iterator[tuple[int, slice]]:
    unit = num_rows // max(1, sum(share_K))
    for k, (share, end) in enumerate(zip(share_K, accumulate(share_K), strict=True)):
        if share:
            yield k, slice((end - share) * unit, end * unit)


def _matrix(weight_K: Tensor, k: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    matrix = weight_K.detach()[k].to(dtype)
    return matrix.T if transposed else matrix


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
