"""K variants of one model that differ in their FF2 weights only, run as one batch.

While a `GroupedFF2` is entered, every down-projection of the model is replaced by one that sends the k-th block of rows
of the batch through the k-th variant's weights. All else is shared. The original modules are put back untouched.

Shape legend: K variants, B rows (all rows of variant 0 first), T tokens, I inner width, D hidden, R adapter rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from types import TracebackType
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
    """The product block by block; gradients are added to `weight_K.grad` directly: autograd's would be mostly 0."""

    @staticmethod
    def forward(
        ctx: Any, rows_MI: Tensor, weight_K: nn.Parameter, share_K: tuple[int, ...], transposed: bool
    ) -> Tensor:
        # Kept for the backward pass: the rows. The matrices are parameters, and stay where they are.
        ctx.save_for_backward(rows_MI)
        ctx.weight_K, ctx.share_K, ctx.transposed = weight_K, share_K, transposed
        # One product per variant, each written into its own part of the output: nothing is padded or copied together.
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
            # Towards the rows: the gradient times the variant's own matrix.
            if grad_MI is not None:
                matrix_ID = _matrix(ctx.weight_K, k, ctx.transposed, rows_MI.dtype)
                torch.mm(grad_MD[block], matrix_ID.T, out=grad_MI[block])
            # Towards the matrix: added in place, see above.
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


class GroupedLinear(nn.Module):
    """K trainable float32 copies of a linear map, each for its block of rows.

    `share_K` gives the sizes of the blocks; None means equal ones.
    """

    def __init__(self, base: nn.Module, num_variants: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.share_K: Sequence[int] | None = None
        weight: Any = base.weight
        self.transposed = isinstance(base, nn.Linear)
        copies_K = weight.detach().to(dtype).expand(num_variants, *weight.shape)
        self.weight_K = nn.Parameter(copies_K.clone(memory_format=torch.contiguous_format))
        self.bias: Tensor | None = getattr(base, "bias", None)

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps (B, T, I) or (B·T, I) to the same shape with D in the last place."""
        out = by_variant(hidden, self.weight_K, self.share_K, transposed=self.transposed)
        return out if self.bias is None else out + self.bias


class GroupedLora(nn.Module):
    """A frozen linear map with K low-rank adapters, `W x + (α/r)·B A dropout(x)`, each for its block of rows.

    Args:
        base: The frozen map.
        rank: Rank of the adapters.
        alpha: Scale α; the adapter's output is multiplied by α/rank.
        dropout: Share of the adapter's inputs that is zeroed while training.
        seeds_K: One seed per variant, for A's initial values; B starts at zero, so that the first output is the base's.
        layer: Number of the layer, mixed into every seed.
    """

    def __init__(
        self, base: nn.Module, *, rank: int, alpha: float, dropout: float, seeds_K: Sequence[int], layer: int
    ) -> None:
        super().__init__()
        self.base, self.dropout, self.layer = base, dropout, layer
        self.scale = alpha / rank
        weight: Any = base.weight
        outer, inner = weight.shape if isinstance(base, nn.Linear) else reversed(weight.shape)
        self.rows_seeds: Sequence[int] | None = None
        self.share_K: Sequence[int] | None = None
        bound = 1.0 / math.sqrt(inner)
        starts = [(2.0 * _uniform((inner, rank), seed, layer) - 1.0) * bound for seed in seeds_K]
        self.a_KIR = nn.Parameter(torch.stack(starts).to(weight.device))
        self.b_KRD = nn.Parameter(torch.zeros(len(starts), rank, outer, device=weight.device))

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps (B, T, I) to (B, T, D)."""
        dropped = self._drop(hidden)
        adapter = by_variant(by_variant(dropped, self.a_KIR, self.share_K), self.b_KRD, self.share_K)
        out: Tensor = self.base(hidden)
        return out + self.scale * adapter

    def _drop(self, hidden: Tensor) -> Tensor:
        if self.rows_seeds is None or self.dropout == 0.0:
            return hidden
        per_row = hidden.view(len(self.rows_seeds), -1, hidden.shape[-1])
        keep = torch.stack([_uniform(per_row.shape[1:], seed, self.layer) >= self.dropout for seed in self.rows_seeds])
        kept = per_row * keep.to(hidden.device) / (1.0 - self.dropout)
        return kept.view_as(hidden)


class GroupedFF2:
    """Owns the K variants' weights; a context manager that puts them into the model and takes them out again."""

    def __init__(self, model: nn.Module, modules: dict[str, nn.Module]) -> None:
        self._model, self._modules = model, modules
        self._originals = {name: model.get_submodule(name) for name in modules}

    @classmethod
    def full(
        cls, model: nn.Module, names: Sequence[str], num_variants: int, dtype: torch.dtype = torch.float32
    ) -> GroupedFF2:
        """Full FF2 matrices, trainable, in `dtype` whatever the model computes in."""
        return cls(model, {name: GroupedLinear(model.get_submodule(name), num_variants, dtype) for name in names})

    @classmethod
    def lora(
        cls, model: nn.Module, names: Sequence[str], seeds_K: Sequence[int], *, rank: int, alpha: float, dropout: float
    ) -> GroupedFF2:
        """Low-rank adapters on FF2, one per seed."""
        modules: dict[str, nn.Module] = {
            name: GroupedLora(
                model.get_submodule(name), rank=rank, alpha=alpha, dropout=dropout, seeds_K=seeds_K, layer=layer
            )
            for layer, name in enumerate(names)
        }
        return cls(model, modules)

    def parameters(self) -> list[nn.Parameter]:
        """The trainable tensors, each with a leading K axis."""
        return [p for module in self._modules.values() for p in module.parameters() if p.requires_grad]

    def set_dropout(self, rows_seeds: Sequence[int] | None) -> None:
        """Seeds of the adapters' dropout, one per row of the coming batch; None turns it off."""
        for module in self._modules.values():
            if isinstance(module, GroupedLora):
                module.rows_seeds = rows_seeds

    def __enter__(self) -> GroupedFF2:
        for name, module in self._modules.items():
            self._model.set_submodule(name, module)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, module in self._originals.items():
            self._model.set_submodule(name, module)


@contextmanager
def shared_out(module: nn.Module, share_K: Sequence[int]) -> Iterator[None]:
    """While entered, the grouped modules in `module` take blocks of these relative sizes; 0 is a variant without rows.

    A gradient may still be taken afterwards.
    """
    grouped = [one for one in module.modules() if isinstance(one, GroupedLinear | GroupedLora)]
    before = [one.share_K for one in grouped]
    for one in grouped:
        one.share_K = share_K
    try:
        yield
    finally:
        for one, share in zip(grouped, before, strict=True):
            one.share_K = share


def _uniform(shape: Sequence[int], seed: int, layer: int) -> Tensor:
    # Drawn on the CPU in row-major order, so that a longer (padded) row starts with the same numbers.
    generator = torch.Generator().manual_seed((seed * 1_000_003 + layer) % 2**63)
    return torch.rand(*shape, generator=generator)
