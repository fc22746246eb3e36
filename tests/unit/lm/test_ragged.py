"""Blocks of rows of any size times their own matrix, against a loop; gradients against autograd of that loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fairwitness.lm.grouped import GroupedFF2, GroupedLinear, by_variant, shared_out
from fairwitness.lm.model import LanguageModel

INNER, OUTER = 5, 4
SHARES = [(2, 2, 2), (1, 4, 1), (0, 6, 0), (3, 0, 3), (6, 0, 0)]


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _loop(rows: Tensor, weight_K: Tensor, share_K: tuple[int, ...], transposed: bool) -> Tensor:
    matrices = weight_K.transpose(1, 2) if transposed else weight_K
    pieces = rows.split(list(share_K))
    return torch.cat([piece @ matrix for piece, matrix in zip(pieces, matrices, strict=True)])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("share_K", SHARES)
def test_products_and_gradients_are_those_of_a_loop(share_K: tuple[int, ...], transposed: bool) -> None:
    start = _random(3, OUTER, INNER) if transposed else _random(3, INNER, OUTER)
    results = []
    for product in (by_variant, None):
        weight_K = nn.Parameter(start.clone())
        rows = _random(6, 7, INNER, seed=1).requires_grad_(True)
        for scale in (1.0, 2.0):  # gradients of two passes add up
            if product is None:
                out = _loop(rows, weight_K, share_K, transposed)
            else:
                out = product(rows, weight_K, share_K, transposed=transposed)
            assert out.shape == (6, 7, OUTER)
            (scale * out).square().sum().backward()
        results.append((out.detach(), rows.grad, weight_K.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_rows_that_need_no_gradient_get_none_and_the_matrices_still_do() -> None:
    weight_K = nn.Parameter(_random(2, INNER, OUTER))
    by_variant(_random(3, INNER), weight_K, (1, 2)).sum().backward()
    assert weight_K.grad is not None
    assert weight_K.grad.abs().sum() > 0


def test_a_float32_matrix_works_on_bfloat16_rows_and_keeps_a_float32_gradient() -> None:
    weight_K = nn.Parameter(_random(2, INNER, OUTER).float())
    rows = _random(6, INNER).bfloat16()
    out = by_variant(rows, weight_K, (1, 2))
    out.float().sum().backward()
    assert (out.dtype, weight_K.grad.dtype) == (torch.bfloat16, torch.float32)  # type: ignore[union-attr]
    expected = _loop(rows.double(), weight_K.double(), (2, 4), False)
    torch.testing.assert_close(out.double(), expected, rtol=0.03, atol=0.03)


def test_shares_hold_inside_the_block_only(tiny_llama: LanguageModel) -> None:
    def shares() -> list[object]:
        return [module.share_K for module in tiny_llama.model.modules() if isinstance(module, GroupedLinear)]

    with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2):
        with shared_out(tiny_llama.model, (1, 3)):
            with shared_out(tiny_llama.ff2_modules()[0], (5, 6)):
                assert shares() == [(5, 6), (1, 3)]
            assert shares() == [(1, 3), (1, 3)]
        assert shares() == [None, None]
