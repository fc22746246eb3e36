"""K variants in one pass equal K models, in full and with adapters; peft is the oracle of the adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from fairwitness.lm.grouped import GroupedFF2, GroupedLinear, GroupedLora
from fairwitness.lm.model import LanguageModel

NUM_VARIANTS, INNER, OUTER = 3, 10, 7
BASES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(INNER, OUTER),
    "linear_without_bias": lambda: nn.Linear(INNER, OUTER, bias=False),
    "conv1d": lambda: Conv1D(OUTER, INNER),
}


def _base(kind: str) -> nn.Module:
    torch.manual_seed(0)
    base = BASES[kind]()
    for parameter in base.parameters():
        nn.init.normal_(parameter)
    return base.requires_grad_(False)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("flat", [False, True])
def test_each_block_of_rows_goes_through_its_own_weights(kind: str, flat: bool) -> None:
    base = _base(kind)
    grouped = GroupedLinear(base, NUM_VARIANTS, torch.float32)
    with torch.no_grad():
        grouped.weight_K += _random(*grouped.weight_K.shape)
    hidden = _random(2 * NUM_VARIANTS, 5, INNER, seed=1)
    found = grouped(hidden.flatten(0, 1) if flat else hidden)
    assert found.shape == ((2 * NUM_VARIANTS * 5, OUTER) if flat else (2 * NUM_VARIANTS, 5, OUTER))
    for k in range(NUM_VARIANTS):
        alone = copy.deepcopy(base)
        alone.get_parameter("weight").data = grouped.weight_K[k].detach()
        block = found.view(NUM_VARIANTS, 2, 5, OUTER)[k]
        torch.testing.assert_close(block, alone(hidden[2 * k : 2 * k + 2]))


@pytest.mark.parametrize("kind", BASES)
def test_variants_start_as_the_base_and_own_their_memory(kind: str) -> None:
    base = _base(kind)
    grouped = GroupedLinear(base, NUM_VARIANTS, torch.float32)
    hidden = _random(NUM_VARIANTS, 4, INNER)
    torch.testing.assert_close(grouped(hidden), base(hidden))
    before = base.get_parameter("weight").clone()
    with torch.no_grad():
        grouped.weight_K[0] += 1.0
    assert torch.equal(base.get_parameter("weight"), before)
    assert torch.equal(grouped.weight_K[1], before)


@pytest.mark.parametrize("kind", BASES)
def test_a_loss_on_one_variant_gives_no_gradient_to_another(kind: str) -> None:
    grouped = GroupedLinear(_base(kind), NUM_VARIANTS, torch.float32)
    grouped(_random(NUM_VARIANTS, 4, INNER))[1].square().sum().backward()
    assert grouped.weight_K.grad is not None
    largest = grouped.weight_K.grad.abs().flatten(1).amax(1)
    assert (largest > 0).tolist() == [False, True, False]
    assert [name for name, parameter in grouped.named_parameters() if parameter.requires_grad] == ["weight_K"]


def test_a_float32_master_copy_computes_in_the_type_of_its_input() -> None:
    base = _base("linear").bfloat16()
    grouped = GroupedLinear(base, NUM_VARIANTS, torch.float32)
    hidden = _random(NUM_VARIANTS, 4, INNER).bfloat16()
    found = grouped(hidden)
    assert (grouped.weight_K.dtype, found.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(found, base(hidden), rtol=0.02, atol=0.02)
    assert GroupedLinear(base, 2, torch.bfloat16).weight_K.dtype == torch.bfloat16


def _lora(
    base: nn.Module, *, rank: int = 4, alpha: float = 32.0, dropout: float = 0.0, seeds: tuple[int, ...] = (1, 2, 3)
) -> GroupedLora:
    return GroupedLora(base, rank=rank, alpha=alpha, dropout=dropout, seeds_K=seeds, layer=0)


@pytest.mark.parametrize("kind", BASES)
def test_adapters_start_as_the_base_and_add_alpha_over_rank_times_their_product(kind: str) -> None:
    base = _base(kind)
    lora = _lora(base, rank=4, alpha=10.0)
    hidden = _random(2 * NUM_VARIANTS, 5, INNER)
    torch.testing.assert_close(lora(hidden), base(hidden))
    with torch.no_grad():
        lora.b_KRD += _random(*lora.b_KRD.shape, seed=2)
    for k in range(NUM_VARIANTS):
        rows = slice(2 * k, 2 * k + 2)
        expected = base(hidden[rows]) + 10.0 / 4 * hidden[rows] @ lora.a_KIR[k] @ lora.b_KRD[k]
        torch.testing.assert_close(lora(hidden)[rows], expected)


def test_first_factors_depend_on_seed_and_layer_only_and_fill_the_usual_range() -> None:
    base = nn.Linear(400, OUTER)
    one, two = _lora(base, seeds=(1, 2, 3)), _lora(base, seeds=(9, 1))
    assert torch.equal(one.a_KIR[0], two.a_KIR[1])
    other_layer = GroupedLora(base, rank=4, alpha=32.0, dropout=0.0, seeds_K=(1,), layer=1)
    different = [one.a_KIR[1], one.a_KIR[2], two.a_KIR[0], other_layer.a_KIR[0]]
    assert all(not torch.allclose(one.a_KIR[0], other, atol=1e-3) for other in different)
    bound = 1 / 400**0.5  # Kaiming's uniform with slope √5, as in peft
    values = one.a_KIR.detach()
    assert 0.99 * bound < values.abs().max() <= bound
    assert values.mean().abs() < 0.05 * bound
    assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert one.b_KRD.abs().max() == 0


def _mask(lora: GroupedLora, num_rows: int, length: int, seeds: list[int] | None) -> Tensor:
    lora.rows_seeds = seeds
    dropped: Tensor = lora._drop(torch.ones(num_rows, length, INNER))
    return dropped


def test_dropout_zeroes_its_share_and_keeps_the_mean() -> None:
    lora = _lora(_base("linear"), dropout=0.1)
    mask = _mask(lora, 3, 2_000, [5, 6, 7])
    assert (mask == 0).float().mean().item() == pytest.approx(0.1, abs=0.005)
    assert mask[mask != 0].unique().tolist() == pytest.approx([1 / 0.9])
    assert mask.mean().item() == pytest.approx(1.0, abs=0.006)
    assert _mask(lora, 3, 9, None).unique().tolist() == [1.0]
    assert _mask(_lora(_base("linear"), dropout=0.0), 3, 9, [5, 6, 7]).unique().tolist() == [1.0]


def test_dropout_masks_depend_on_seed_and_layer_not_on_padding_or_neighbours() -> None:
    lora = _lora(_base("linear"), dropout=0.5)
    alone = _mask(lora, 1, 8, [5])[0]
    beside = _mask(lora, 3, 20, [7, 5, 6])
    assert torch.equal(beside[1, :8], alone)
    assert not torch.equal(beside[0, :8], alone)
    assert not torch.equal(beside[1, :8], beside[1, 8:16])
    other_layer = GroupedLora(_base("linear"), rank=4, alpha=32.0, dropout=0.5, seeds_K=(1,), layer=1)
    assert not torch.equal(_mask(other_layer, 1, 8, [5])[0], alone)
    lora.rows_seeds = [7, 5, 6]
    assert torch.equal(lora._drop(torch.ones(60, INNER)).view(3, 20, INNER), beside)


def _peft_model(lm: LanguageModel, adapters: GroupedFF2, number: int, *, rank: int, alpha: int) -> Any:
    target = lm.ff2_names[0].rsplit(".", 1)[-1]
    names = [name for name in lm.ff2_names if name.endswith(target)]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=names,
        fan_in_fan_out=isinstance(lm.ff2_modules()[0], Conv1D),
    )
    model: Any = get_peft_model(copy.deepcopy(lm.model), config)
    loras = [module for module in adapters._modules.values() if isinstance(module, GroupedLora)]
    for name, lora in zip(names, loras, strict=True):
        module = model.base_model.model.get_submodule(name)
        module.lora_A["default"].weight.data = lora.a_KIR[number].detach().T.clone()
        module.lora_B["default"].weight.data = lora.b_KRD[number].detach().T.clone()
    return model


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_two_updates_equal_those_of_peft(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm, rank, alpha = tiny_lm(model_type), 4, 32
    adapters = GroupedFF2.lora(lm.model, lm.ff2_names, (11, 12), rank=rank, alpha=alpha, dropout=0.0)
    ids = torch.tensor([[20, 31, 42, 53, 64], [25, 36, 47, 58, 69]])
    theirs = [_peft_model(lm, adapters, k, rank=rank, alpha=alpha) for k in range(2)]
    ours_optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-2)
    their_optimizers = [torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-2) for m in theirs]
    for _ in range(2):
        with adapters:
            ours_logits = lm.model(input_ids=ids).logits
            ours_optimizer.zero_grad()
            ours_logits.logsumexp(-1).sum().backward()
            ours_optimizer.step()
        for k, (model, optimizer) in enumerate(zip(theirs, their_optimizers, strict=True)):
            logits = model(input_ids=ids[k : k + 1]).logits
            torch.testing.assert_close(ours_logits[k : k + 1].detach(), logits.detach(), rtol=1e-5, atol=2e-5)
            optimizer.zero_grad()
            logits.logsumexp(-1).sum().backward()
            optimizer.step()
    for k, model in enumerate(theirs):
        trained = [p.detach() for p in model.parameters() if p.requires_grad]  # A and B of each layer
        ours = [p[k].detach().T for p in adapters.parameters()]
        torch.testing.assert_close(ours, trained, rtol=1e-4, atol=1e-6)
        assert trained[1].abs().max() > 1e-3


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt", "gpt_neox", "gemma2"])
def test_a_grouped_model_equals_one_model_per_variant(
    model_type: str, tiny_lm: Callable[[str], LanguageModel], fresh_lm: Callable[[str], LanguageModel]
) -> None:
    lm, single = tiny_lm(model_type), fresh_lm(model_type)
    variants = GroupedFF2.full(lm.model, lm.ff2_names, NUM_VARIANTS)
    with torch.no_grad():
        for seed, parameter in enumerate(variants.parameters()):
            parameter += 0.1 * _random(*parameter.shape, seed=seed)
    ids = torch.randint(10, 300, (2 * NUM_VARIANTS, 9), generator=torch.Generator().manual_seed(0))
    with variants, torch.no_grad():
        found = lm.model(input_ids=ids).logits
    for k in range(NUM_VARIANTS):
        for weight, parameter in zip(single.ff2_weights().values(), variants.parameters(), strict=True):
            weight.data.copy_(parameter[k].detach())
        with torch.no_grad():
            expected = single.model(input_ids=ids[2 * k : 2 * k + 2]).logits
        torch.testing.assert_close(found[2 * k : 2 * k + 2], expected, rtol=1e-5, atol=2e-5)
        assert not torch.allclose(expected, lm.model(input_ids=ids[2 * k : 2 * k + 2]).logits, atol=0.01)


def test_entering_replaces_ff2_and_leaving_puts_the_very_modules_back(tiny_llama: LanguageModel) -> None:
    originals = tiny_llama.ff2_modules()
    everything = [id(module) for module in tiny_llama.model.modules()]
    variants = GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2)
    assert tiny_llama.ff2_modules() == originals  # nothing happens before it is entered
    with variants as entered:
        assert entered is variants
        assert all(isinstance(module, GroupedLinear) for module in tiny_llama.ff2_modules())
    assert [id(module) for module in tiny_llama.model.modules()] == everything
    with pytest.raises(KeyError), variants:
        raise KeyError
    assert [id(module) for module in tiny_llama.model.modules()] == everything


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_many_adapters_share_one_frozen_ff2(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    """The base module is the model's own, and no pass makes a copy of its weights for each adapter."""
    lm, num, rank = tiny_lm(model_type), 8, 2
    adapters = GroupedFF2.lora(lm.model, lm.ff2_names, range(num), rank=rank, alpha=4.0, dropout=0.1)
    bases = lm.ff2_modules()
    assert sum(p.numel() for p in adapters.parameters()) == num * rank * sum(sum(m.weight.shape) for m in bases)
    shapes: list[tuple[int, ...]] = []

    def note(tensor: Tensor) -> Tensor:
        shapes.append(tuple(tensor.shape))
        return tensor

    with adapters, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        grouped = lm.ff2_modules()
        assert all(lora.base is base for lora, base in zip(grouped, bases, strict=True))
        adapters.set_dropout(range(num))
        lm.model(input_ids=torch.arange(20, 20 + 3 * num).view(num, 3)).logits.sum().backward()
    # Per adapter there are the two narrow factors; nothing has the size of K bases.
    whole = {(num, *shape) for base in bases for shape in (tuple(base.weight.shape), tuple(base.weight.T.shape))}
    assert whole.isdisjoint(shapes)
    assert (num, 48, rank) in shapes
    assert all(base.weight.grad is None and not base.weight.requires_grad for base in bases)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_only_the_variants_are_trained(method: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("gpt2")  # its FF2 has a bias, which is not part of what is trained
    if method == "full":
        variants, shapes = GroupedFF2.full(lm.model, lm.ff2_names, 2), [[2, 48, 32]] * 2
    else:
        variants = GroupedFF2.lora(lm.model, lm.ff2_names, (1, 2), rank=3, alpha=6.0, dropout=0.0)
        shapes = [[2, 48, 3], [2, 3, 32]] * 2
    assert [list(parameter.shape) for parameter in variants.parameters()] == shapes
    with variants:
        lm.model(input_ids=torch.tensor([[20, 21], [22, 23]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in variants.parameters())
    assert all(parameter.grad is None for parameter in lm.model.parameters())
