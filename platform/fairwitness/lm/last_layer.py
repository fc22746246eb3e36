"""The last layer, run only at the positions whose logits are read wherever that changes nothing.

Nothing after its attention mixes positions, so what its queries, the attention's output projection and its feed-forward
part give elsewhere is never looked at. With eight layers this saves about a tenth of the arithmetic.

Shape legend: B rows, T tokens, D hidden, N positions, K variants of a grouped model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from fairwitness.lm.grouped import shared_out
from fairwitness.lm.inspect import layer_names

_PROJECTIONS = ("self_attn.q_proj", "self_attn.o_proj")


def last_modules(model: nn.Module, ff2_names: Sequence[str], *, with_mlp: bool = True) -> tuple[nn.Module, ...]:
    """Modules of the last decoder layer that work position by position and are followed by nothing that does not.

    `mlp` is left out where it takes more than the hidden state (BLOOM and MPT add the residual inside). An architecture
    with other names has fewer such modules or none.

    Args:
        model: The decoder.
        ff2_names: Names of its FF2 modules, in the order of the layers.
        with_mlp: Whether the feed-forward module may be among them.
    """
    layer = layer_names(ff2_names)[-1]
    inside = ff2_names[-1].removeprefix(f"{layer}.")
    modules = dict(model.get_submodule(layer).named_modules())
    found = [modules[name] for name in _PROJECTIONS if name in modules]
    mlp = modules.get("mlp")
    is_plain = mlp is not None and len(inspect.signature(mlp.forward).parameters) == 1
    if mlp is not None and is_plain and with_mlp and re.fullmatch(r"mlp\.\w+", inside):
        found.append(mlp)
    return tuple(found)


@contextmanager
def only_at(
    modules: Sequence[nn.Module], row_N: Tensor, col_N: Tensor, shape_BT: Sequence[int], rows_K: Sequence[int] | None
) -> Iterator[None]:
    """While entered, the modules see and compute the positions at these rows and columns only; elsewhere they give 0.

    Args:
        modules: Each maps one tensor (B, T, any width) to (B, T, any width); it is handed (1, N, width) instead.
        row_N: Row of each position.
        col_N: Column of each position.
        shape_BT: Number of rows and tokens of the batch.
        rows_K: Rows of each variant, where the model is grouped.
    """
    num_rows, num_tokens = shape_BT
    read_N = torch.unique(row_N * num_tokens + col_N)

    def gather(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        (hidden_BTD,) = args
        return (hidden_BTD.reshape(1, -1, hidden_BTD.shape[-1]).index_select(1, read_N),)

    def scatter(_module: nn.Module, _args: tuple[Tensor], out_1ND: Tensor) -> Tensor:
        wide = out_1ND.new_zeros(num_rows * num_tokens, out_1ND.shape[-1])
        return wide.index_copy(0, read_N, out_1ND[0]).view(num_rows, num_tokens, -1)

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(gather).remove)
            stack.callback(module.register_forward_hook(scatter).remove)
            if rows_K is not None:
                variant_B = torch.arange(len(rows_K)).repeat_interleave(torch.tensor(rows_K)).to(read_N.device)
                reads_K = torch.bincount(variant_B[read_N // num_tokens], minlength=len(rows_K)).tolist()
                stack.enter_context(shared_out(module, reads_K))
        yield
