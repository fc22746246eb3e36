"""Arithmetic of the memory model, what is measured for it, and the group size that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch

from fairwitness.fur import memory
from fairwitness.fur.config import FullFF2Config, LoraConfig, ObjectiveName, RecipeConfig
from fairwitness.fur.memory import MemoryModel, capacity, free_bytes, memory_model
from fairwitness.lm.config import EngineConfig, ModelConfig
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel, load
from tests.helpers.fur_tasks import make_tasks

MODEL = MemoryModel(
    per_task_bytes=1_000,
    per_token_bytes=10,
    per_position_bytes=7,
    tokens_per_row=20,
    tokens_per_task=100,
    positions_per_task=3,
    max_tokens=250,
)


def test_group_bytes_worked_by_hand() -> None:
    # One task: its retained rows are one pass of 100 tokens. Four: 400 tokens do not fit into a pass of 250. A pass
    # cannot be smaller than one row.
    assert MODEL.group_bytes(1) == 1 * 1_000 + 100 * 10 + 3 * 7
    assert MODEL.group_bytes(4) == 4 * 1_000 + 250 * 10 + 12 * 7
    assert MODEL.group_bytes(20) == 20 * 1_000 + 250 * 10 + 60 * 7
    assert replace(MODEL, max_tokens=1).group_bytes(20) == 20 * 1_000 + 20 * 10 + 60 * 7


def test_the_largest_group_is_the_last_that_fits() -> None:
    for budget in (5_000, 9_999, 40_000):
        size = MODEL.largest_group(budget, limit=1_000)
        assert MODEL.group_bytes(size) <= budget < MODEL.group_bytes(size + 1)
    assert MODEL.largest_group(10**9, limit=16) == 16
    assert MODEL.largest_group(0, limit=16) == 1
    assert MODEL.largest_group(10**9, limit=1) == 1


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt", "gemma2"])
def test_trained_numbers_are_counted_with_gradient_and_moments(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    (task,) = make_tasks(lm, 1)
    full = memory_model(lm, task, RecipeConfig(), 512)
    lora = memory_model(lm, task, RecipeConfig(method=LoraConfig(rank=3)), 512)
    assert full.per_task_bytes == 2 * 48 * 32 * 4 * 4  # two layers, four float32 numbers each
    assert lora.per_task_bytes == 2 * 3 * (48 + 32) * 4 * 4
    assert full.tokens_per_task == sum(len(span.ids) for span in task.retain)
    assert full.tokens_per_row == task.num_tokens == max(len(span.ids) for span in (task.forget, *task.retain))
    assert full.per_position_bytes % (4 * lm.facts.vocab_size) == 0


@pytest.mark.parametrize(
    ("dtype", "method", "bytes_per_number"),
    [
        ("float32", FullFF2Config(), 4 * 4),
        ("bfloat16", FullFF2Config(), 4 * 4 + 2),
        ("float32", FullFF2Config(precision="bf16_pure"), 4 * 2 + 4),
        ("bfloat16", FullFF2Config(precision="bf16_pure"), 4 * 2),
        ("bfloat16", LoraConfig(rank=3), 4 * 4 + 2),
    ],
)
def test_the_copy_that_the_model_computes_with_is_counted(
    dtype: str, method: FullFF2Config | LoraConfig, bytes_per_number: int, tiny_folder: Callable[[str], Path]
) -> None:
    lm = load(ModelConfig.model_validate({"model": str(tiny_folder("llama")), "dtype": dtype}))
    (task,) = make_tasks(lm, 1)
    num_tasks = 3
    if isinstance(method, FullFF2Config):
        kept = torch.bfloat16 if method.precision == "bf16_pure" else torch.float32
        variants = GroupedFF2.full(lm.model, lm.ff2_names, num_tasks, kept)
    else:
        variants = GroupedFF2.lora(lm.model, lm.ff2_names, [1, 2, 3], rank=method.rank, alpha=1.0, dropout=0.0)
    parameters = variants.parameters()
    owned = {p.untyped_storage().data_ptr() for p in (*lm.model.parameters(), *parameters)}
    shapes = {shape for p in parameters for shape in (tuple(p.shape), (len(p), *reversed(p.shape[1:])))}
    copies: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if tuple(tensor.shape) in shapes and pointer not in owned:
            copies[pointer] = tensor.untyped_storage().nbytes()
        return tensor

    optimizer = torch.optim.AdamW(parameters)
    with variants, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = lm.model(input_ids=torch.zeros(num_tasks, 5, dtype=torch.long), use_cache=False).logits
    logits.float().square().mean().backward()
    optimizer.step()
    state = [value for p in parameters for value in optimizer.state[p].values() if value.shape == p.shape]
    gradients = [p.grad for p in parameters if p.grad is not None]
    held = sum(tensor.nbytes for tensor in (*parameters, *gradients, *state)) + sum(copies.values())
    numbers = sum(p.numel() for p in parameters)
    # Nothing is computed before the first layer's map whose gradient would need a copy of that map.
    first = parameters[0].numel() // num_tasks
    estimate = memory_model(lm, task, RecipeConfig(method=method), 512).per_task_bytes
    assert estimate == numbers // num_tasks * bytes_per_number
    assert estimate - 4 * first <= held / num_tasks <= estimate


def test_positions_are_those_at_which_training_reads_logits(tiny_llama: LanguageModel) -> None:
    (task,) = make_tasks(tiny_llama, 1, num_retain=2)
    content = memory_model(tiny_llama, task, RecipeConfig(), 512)
    everything = memory_model(tiny_llama, task, RecipeConfig(retain="reference"), 512)
    assert content.positions_per_task == sum(len(span.content) for span in (task.forget, *task.retain))
    assert everything.positions_per_task == len(task.forget.content) + sum(len(span.ids) for span in task.retain)
    likelihood = memory_model(tiny_llama, task, RecipeConfig(objective="npo_grad_diff", retain="reference"), 512)
    assert likelihood.positions_per_task == content.positions_per_task


@pytest.mark.parametrize("name", get_args(ObjectiveName))
def test_only_a_divergence_pays_for_distributions_of_the_reference(
    name: ObjectiveName, tiny_llama: LanguageModel
) -> None:
    (task,) = make_tasks(tiny_llama, 1)
    found = memory_model(tiny_llama, task, RecipeConfig(objective=name), 512)
    copies = 8 if name == "npo_kl" else 5
    assert found.per_position_bytes == tiny_llama.facts.vocab_size * 4 * copies
    assert found.per_task_bytes == memory_model(tiny_llama, task, RecipeConfig(), 512).per_task_bytes


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt", "gpt_neox", "gemma2"])
def test_bytes_per_token_are_measured_and_hardly_depend_on_the_probe(
    model_type: str, tiny_lm: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = tiny_lm(model_type)
    (task,) = make_tasks(lm, 1)
    measured = []
    for tokens in (64, 128):
        monkeypatch.setattr(memory, "PROBE_TOKENS", tokens)
        measured.append(memory_model(lm, task, RecipeConfig(), 512).per_token_bytes)
    # At least the inner activations of both layers, which the gradient of FF2 needs, are kept.
    assert min(measured) >= 2 * 48 * 4
    assert max(measured) < 100 * 48 * 4
    assert measured[1] == pytest.approx(measured[0], rel=0.5)
    assert not any(parameter.requires_grad for parameter in lm.model.parameters())
    assert all(parameter.grad is None for parameter in lm.model.parameters())


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_dropout_keeps_one_byte_per_inner_activation(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    """Its mask. The adapters' own narrow activations are kept with or without it."""
    lm = tiny_lm(model_type)
    (task,) = make_tasks(lm, 1)

    def bytes_per_token(rank: int, dropout: float) -> int:
        recipe = RecipeConfig(method=LoraConfig(rank=rank, dropout=dropout))
        return memory_model(lm, task, recipe, 512).per_token_bytes

    # The lower layer's activations need no gradient of their own, so its mask is not kept.
    assert bytes_per_token(3, 0.1) - bytes_per_token(3, 0.0) == 48
    assert bytes_per_token(7, 0.0) - bytes_per_token(3, 0.0) == 2 * 4 * 4
    assert all(type(module).__name__ != "GroupedLora" for module in lm.model.modules())
    assert not any(parameter.requires_grad for parameter in lm.model.parameters())


def test_capacity_takes_the_size_asked_for_or_what_fits(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = make_tasks(tiny_llama, 1)
    model = memory_model(tiny_llama, task, RecipeConfig(), 512)
    asked = capacity(tiny_llama, task, RecipeConfig(), EngineConfig(group_size=3, max_tokens=512))
    assert (asked.group_size, asked.group_bytes) == (3, model.group_bytes(3))
    assert asked.model_bytes == sum(p.numel() * 4 for p in tiny_llama.model.parameters())
    assert asked.process_bytes > asked.model_bytes
    assert asked.peak_bytes == asked.process_bytes + asked.group_bytes

    monkeypatch.setattr(memory, "free_bytes", lambda _device: model.group_bytes(6) * 2)
    engine = EngineConfig(max_tokens=512, memory_share=0.5)
    assert capacity(tiny_llama, task, RecipeConfig(), engine).group_size == 6
    few = engine.model_copy(update={"max_group_size": 4})
    assert capacity(tiny_llama, task, RecipeConfig(), few).group_size == 4
    monkeypatch.setattr(memory, "free_bytes", lambda _device: 0)
    assert capacity(tiny_llama, task, RecipeConfig(), engine).group_size == 1


def test_a_longer_task_leaves_room_for_fewer(tiny_llama: LanguageModel) -> None:
    (task,) = make_tasks(tiny_llama, 1)
    long = replace(task, forget=replace(task.forget, ids=task.forget.ids * 5))
    models = [memory_model(tiny_llama, t, RecipeConfig(), 10_000) for t in (task, long)]
    sizes = [model.largest_group(20_000_000, limit=1_000) for model in models]
    assert sizes[0] > sizes[1] >= 1


def test_free_bytes_of_the_machine() -> None:
    assert 10**6 < free_bytes(torch.device("cpu")) < 10**14
