"""The last layer's feed-forward part, run only at the positions whose logits are read.

Nothing after it mixes positions, so what it gives elsewhere is never looked at. With eight layers this saves about a
twelfth of the arithmetic.

Shape legend: B rows, T tokens, D hidden, N positions, G blocks of rows (one per variant of a grouped model), P
positions of a block.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

_IN_LAYER = re.compile(r"(.+\.\d+\.mlp)\.\w+")


def last_mlp(model: nn.Module, ff2_names: Sequence[str]) -> nn.Module | None:
    """The module `mlp` of the last decoder layer.

    None where an architecture has no such module between layer and FF2 (OPT), or where it takes more than the hidden
    state (BLOOM and MPT add the residual inside).
    """
    match = _IN_LAYER.fullmatch(ff2_names[-1])
    if match is None:
        return None
    module = model.get_submodule(match[1])
    return module if len(inspect.signature(module.forward).parameters) == 1 else None


@contextmanager
def only_at(mlp: nn.Module, row_N: Tensor, col_N: Tensor, num_blocks: int) -> Iterator[None]:
    """While entered, the module sees and computes the positions at these rows and columns only; elsewhere it gives 0.

    It is handed (G, P, D), all positions of one block of rows together; blocks with fewer positions than others are
    filled up with a repeated one.
    """
    places: list[_Places] = []

    def gather(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        (hidden_BTD,) = args
        places.append(_places(row_N, col_N, hidden_BTD.shape[:2], num_blocks))
        return (hidden_BTD.reshape(-1, hidden_BTD.shape[-1])[places[-1].taken_GP],)

    def scatter(_module: nn.Module, _args: tuple[Tensor], out_GPD: Tensor) -> Tensor:
        place = places.pop()
        wide = out_GPD.new_zeros(place.num_rows * place.num_tokens, out_GPD.shape[-1])
        found_ND = out_GPD.reshape(-1, out_GPD.shape[-1])[place.found_N]
        return wide.index_copy(0, place.read_N, found_ND).view(place.num_rows, place.num_tokens, -1)

    handles = [mlp.register_forward_pre_hook(gather), mlp.register_forward_hook(scatter)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Places(NamedTuple):
    """Flat indices: of the positions taken in (B·T), of the N results in (G·P), and where those go in (B·T)."""

    num_rows: int
    num_tokens: int
    taken_GP: Tensor
    found_N: Tensor
    read_N: Tensor


def _places(row_N: Tensor, col_N: Tensor, shape: Sequence[int], num_blocks: int) -> _Places:
    num_rows, num_tokens = shape
    read_N = torch.unique(row_N * num_tokens + col_N)
    block_size = num_rows // num_blocks * num_tokens
    block_N = read_N // block_size
    count_G = torch.bincount(block_N, minlength=num_blocks)
    start_G = count_G.cumsum(0) - count_G
    number_N = torch.arange(len(read_N), device=read_N.device) - start_G[block_N]
    most = int(count_G.max())
    taken_GP = (torch.arange(num_blocks, device=read_N.device) * block_size)[:, None].repeat(1, most)
    taken_GP[block_N, number_N] = read_N
    return _Places(num_rows, num_tokens, taken_GP, block_N * most + number_N, read_N)
