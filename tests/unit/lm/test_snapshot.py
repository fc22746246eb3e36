"""Checksums tell equal weights from unequal ones, to the bit."""

from __future__ import annotations

import pytest
import torch

from fairwitness.lm.model import checksum


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_a_copy_has_the_same_and_one_flipped_bit_another(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    before = checksum({"w": tensor})
    assert checksum({"w": tensor.clone()}) == before
    changed = tensor.clone()
    changed.view(torch.uint8)[1, 0] ^= 1
    assert checksum({"w": changed}) != before


def test_names_shapes_and_types_count_and_order_does_not() -> None:
    a, b = torch.zeros(2, 3), torch.ones(2)
    assert checksum({"a": a, "b": b}) == checksum({"b": b, "a": a})
    assert checksum({"a": a}) != checksum({"b": a})
    assert checksum({"a": a}) != checksum({"a": a.reshape(3, 2)})
    assert checksum({"a": torch.zeros(2)}) != checksum({"a": torch.zeros(2, dtype=torch.int32)})
    assert checksum({}) != checksum({"a": torch.zeros(0)})


def test_zeros_of_both_signs_differ_and_nan_equals_itself() -> None:
    assert checksum({"w": torch.tensor([0.0])}) != checksum({"w": torch.tensor([-0.0])})
    nan = torch.tensor([float("nan")])
    assert checksum({"w": nan}) == checksum({"w": nan.clone()})


def test_transposed_view_counts_by_its_values() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert checksum({"w": tensor.T}) == checksum({"w": tensor.T.contiguous()})
    assert checksum({"w": torch.nn.Parameter(tensor)}) == checksum({"w": tensor})
