"""Logits with the last layer run at the read positions only equal those of the whole pass."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.last_layer import last_modules, only_at
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import Positions, logits_at, pad_right
from tests.helpers.fur_tasks import random_ids

NAMES = {
    "llama": ("self_attn.q_proj", "self_attn.o_proj", "mlp"),
    "qwen3": ("self_attn.q_proj", "self_attn.o_proj", "mlp"),
    "gemma2": ("self_attn.q_proj", "self_attn.o_proj", "mlp"),
    "gemma3_text": ("self_attn.q_proj", "self_attn.o_proj", "mlp"),
    "mistral": ("self_attn.q_proj", "self_attn.o_proj", "mlp"),
    "phi3": ("self_attn.o_proj", "mlp"),
    "opt": ("self_attn.q_proj",),
    "gpt2": ("mlp",),
    "gpt_neox": ("mlp",),
    "falcon": ("mlp",),
    "bloom": (),
    "mpt": (),
}
LENGTHS = (9, 3, 17, 12, 24, 6)
READS = [(0, 8), (1, 0), (1, 2), (3, 11), (4, 4), (4, 20), (4, 23)]
"""Some rows have several reads, some none."""


def _batch(lm: LanguageModel) -> tuple[Tensor, Positions]:
    draw = random.Random(5)
    rows, cols = zip(*READS, strict=True)
    ids_BT = pad_right([random_ids(draw, lm.facts.vocab_size, length) for length in LENGTHS])
    return ids_BT, Positions(torch.tensor(rows), torch.tensor(cols))


@pytest.mark.parametrize("model_type", NAMES)
def test_logits_are_those_of_the_whole_pass(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    last = last_modules(lm.model, lm.ff2_names)
    names = {id(module): name for name, module in lm.model.named_modules()}
    assert tuple(re.sub(r".*\.1\.", "", names[id(module)]) for module in last) == NAMES[model_type]
    ids_BT, positions = _batch(lm)
    with torch.no_grad():
        found = logits_at(lm.model, ids_BT, positions, last=last)
        expected = logits_at(lm.model, ids_BT, positions)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_feed_forward_module_can_be_left_out(tiny_llama: LanguageModel) -> None:
    some = last_modules(tiny_llama.model, tiny_llama.ff2_names, with_mlp=False)
    assert some == last_modules(tiny_llama.model, tiny_llama.ff2_names)[:2]


@pytest.mark.parametrize("rows_K", [(2, 2, 2), (3, 0, 3), (1, 4, 1)])
@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt", "gemma2"])
def test_gradients_of_every_variant_are_those_of_the_whole_pass(
    model_type: str, rows_K: tuple[int, ...], tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    ids_BT, positions = _batch(lm)
    found = []
    for last in (last_modules(lm.model, lm.ff2_names), ()):
        with GroupedFF2.full(lm.model, lm.ff2_names, 3) as variants:
            for seed, parameter in enumerate(variants.parameters()):
                parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
            logits_NV = logits_at(lm.model, ids_BT, positions, rows_K=rows_K, last=last)
            (logits_NV[:, :20] ** 2).sum().backward()  # type: ignore[no-untyped-call]
            found.append([logits_NV.detach(), *[parameter.grad for parameter in variants.parameters()]])
    for trimmed, whole in zip(*found, strict=True):
        torch.testing.assert_close(trimmed, whole, rtol=1e-4, atol=1e-4)


def test_a_module_sees_the_read_positions_and_is_left_as_it_was() -> None:
    module = torch.nn.Identity()
    seen: list[Tensor] = []
    module.register_forward_hook(lambda _module, args, _output: seen.append(args[0]))
    hidden_BTD = torch.arange(6 * 24.0).view(6, 24, 1) + 1
    row_N, col_N = (torch.tensor(part) for part in zip(*READS[::-1], strict=True))
    with only_at([module], row_N, col_N, (6, 24), None):
        wide: Any = module(hidden_BTD)
    assert seen[0].flatten().tolist() == [hidden_BTD[row, col].item() for row, col in READS]
    expected_wide = torch.zeros_like(hidden_BTD)
    expected_wide[row_N, col_N] = hidden_BTD[row_N, col_N]
    torch.testing.assert_close(wide, expected_wide, rtol=0, atol=0)
    assert module(hidden_BTD) is hidden_BTD
