"""Logits with the last feed-forward module run at the read positions only equal those of the whole pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.last_layer import last_mlp, only_at
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import Positions, logits_at, pad_right
from tests.helpers.fur_tasks import random_ids

WITH_MLP = ("llama", "gpt2", "gpt_neox", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "falcon")
WITHOUT_MLP = ("opt", "bloom")
LENGTHS = (9, 3, 17, 12, 24, 6)
READS = [(0, 8), (1, 0), (1, 2), (3, 11), (4, 4), (4, 20), (4, 23)]
"""Of three blocks of two rows the first has three reads, the second one, the last three."""


def _batch(lm: LanguageModel) -> tuple[Tensor, Positions]:
    draw = random.Random(5)
    rows, cols = zip(*READS, strict=True)
    ids_BT = pad_right([random_ids(draw, lm.facts.vocab_size, length) for length in LENGTHS])
    return ids_BT, Positions(torch.tensor(rows), torch.tensor(cols))


@pytest.mark.parametrize("model_type", WITH_MLP)
def test_logits_are_those_of_the_whole_pass(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    mlp = last_mlp(lm.model, lm.ff2_names)
    assert mlp is not None
    ids_BT, positions = _batch(lm)
    with torch.no_grad():
        found = logits_at(lm.model, ids_BT, positions, mlp=mlp)
        expected = logits_at(lm.model, ids_BT, positions)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model_type", WITHOUT_MLP)
def test_an_architecture_without_such_a_module_has_none(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    assert last_mlp(lm.model, lm.ff2_names) is None


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma2"])
def test_gradients_of_every_variant_are_those_of_the_whole_pass(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    ids_BT, positions = _batch(lm)
    found = []
    for mlp in (last_mlp(lm.model, lm.ff2_names), None):
        with GroupedFF2.full(lm.model, lm.ff2_names, 3) as variants:
            for seed, parameter in enumerate(variants.parameters()):
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
            logits_NV = logits_at(lm.model, ids_BT, positions, mlp=mlp, num_blocks=3)
            (logits_NV[:, :20] ** 2).sum().backward()  # type: ignore[no-untyped-call]
            found.append([logits_NV.detach(), *[parameter.grad for parameter in variants.parameters()]])
    for trimmed, whole in zip(*found, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-4, atol=1e-4)


def test_the_module_sees_the_read_positions_of_its_block_and_is_left_as_it_was() -> None:
    mlp = torch.nn.Identity()
    seen: list[Tensor] = []
    mlp.register_forward_hook(lambda _module, args, _output: seen.append(args[0]))
    hidden_BTD = torch.arange(6 * 24.0).view(6, 24, 1) + 1
    row_N, col_N = (torch.tensor(part) for part in zip(*READS, strict=True))
    with only_at(mlp, row_N, col_N, 3):
        wide: Any = mlp(hidden_BTD)
    values = [[hidden_BTD[r, c, 0].item() for r, c in READS if r // 2 == block] for block in range(3)]
    for block, (found, expected) in enumerate(zip(seen[0][..., 0].tolist(), values, strict=True)):
        assert found[: len(expected)] == expected, block
    assert seen[0].shape == (3, 3, 1)
    expected_wide = torch.zeros_like(hidden_BTD)
    expected_wide[row_N, col_N] = hidden_BTD[row_N, col_N]
    torch.testing.assert_close(wide, expected_wide, rtol=0, atol=0)
    assert mlp(hidden_BTD) is hidden_BTD
