"""How much memory a group needs, and how large a group may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor, nn

from fairwitness.chains.items import (
    Question,
)
from fairwitness.fur.config import FullFF2Config, LoraConfig, RecipeConfig
from fairwitness.fur.objective import objective_of, retained_positions
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.lm.config import EngineConfig
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import PAD_ID

BYTES_FLOAT32 = 4
COPIES_PER_PARAMETER = 4
"""A trained number is kept four times: itself, its gradient and AdamW's two moments. Where the model computes in
another type there is a fifth in that type, which the backward pass needs."""
LOGIT_COPIES = {"divergence": 8, "targets": 5}
"""Tensors of the size of the logits that are there at once, by what an objective needs of the retain set (torch's
memory profile of the backward pass). `divergence`: those of a KL divergence, and the reference's. `targets`: logits,
log-probabilities and the gradients of both, and one in reserve; no reference is held."""
PROBE_TOKENS = 64


@dataclass(frozen=True)
class MemoryModel:
    """Bytes that a group takes beyond the loaded model, as a function of its size.

    Attributes:
        per_task_bytes: Trained weights with optimiser state, gradient and, where the model computes in another type,
            the copy it computes with, of one task.
        per_token_bytes: What one token of a differentiated pass keeps until its gradient is there.
        per_position_bytes: What one position at which logits are read keeps.
        tokens_per_row: Length of the longest row.
        tokens_per_task: Tokens of a task that one pass may differentiate: of its forgotten row or of all its retained
            ones, which have passes of their own.
        positions_per_task: Positions at which a task reads logits in training.
        max_tokens: Padded tokens per pass.
    """

    per_task_bytes: int
    per_token_bytes: int
    per_position_bytes: int
    tokens_per_row: int
    tokens_per_task: int
    positions_per_task: int
    max_tokens: int

    def group_bytes(self, num_tasks: int) -> int:
        """Bytes for a group of this size."""
        tokens = max(self.tokens_per_row, min(self.max_tokens, num_tasks * self.tokens_per_task))
        positions = num_tasks * self.positions_per_task
        return num_tasks * self.per_task_bytes + tokens * self.per_token_bytes + positions * self.per_position_bytes

    def largest_group(self, budget_bytes: int, limit: int) -> int:
        """Most tasks within a budget, at least 1 and at most `limit`."""
        size = 1
        while size < limit and self.group_bytes(size + 1) <= budget_bytes:
            size += 1
        return size


@dataclass(frozen=True)
class Capacity:
    """What fits.

    Attributes:
        group_size: Tasks per group.
        group_bytes: Estimated bytes of such a group.
        model_bytes: Bytes of the loaded model's parameters.
        process_bytes: Resident bytes of the process before the group, the model included (0 on a GPU).
        free_bytes: Free memory of the device when asked.
    """

    group_size: int
    group_bytes: int
    model_bytes: int
    process_bytes: int
    free_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of the process (CPU) or of the device memory that torch holds (GPU)."""
        return max(self.process_bytes, self.model_bytes) + self.group_bytes


def capacity(lm: LanguageModel, longest: UnlearnTask, recipe: RecipeConfig, engine: EngineConfig) -> Capacity:
    """Chooses K from free memory, or takes `group_size`, and estimates what it needs."""
    model = memory_model(lm, longest, recipe, engine.max_tokens)
    free = free_bytes(lm.device)
    size = engine.group_size or model.largest_group(int(free * engine.memory_share), engine.max_group_size)
    weights = sum(p.numel() * p.element_size() for p in lm.model.parameters())
    resident = psutil.Process().memory_info().rss if lm.device.type == "cpu" else 0
    return Capacity(size, model.group_bytes(size), weights, resident, free)


def memory_model(lm: LanguageModel, longest: UnlearnTask, recipe: RecipeConfig, max_tokens: int) -> MemoryModel:
    """Measures what one token keeps for the backward pass, and counts the rest."""
    positions = len(longest.forget.content)
    for span in longest.retain:
        positions += len(retained_positions(span, recipe))
    return MemoryModel(
        per_task_bytes=_trained_numbers(lm, recipe) * _bytes_per_number(lm, recipe),
        per_token_bytes=_saved_bytes_per_token(lm, recipe),
        per_position_bytes=lm.facts.vocab_size * BYTES_FLOAT32 * LOGIT_COPIES[objective_of(recipe).needs.retain],
        tokens_per_row=longest.num_tokens,
        tokens_per_task=max(len(longest.forget.ids), sum(len(span.ids) for span in longest.retain)),
        positions_per_task=positions,
        max_tokens=max_tokens,
    )


def free_bytes(device: torch.device) -> int:
    """Free memory of the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _trained_numbers(lm: LanguageModel, recipe: RecipeConfig) -> int:
    weights = lm.ff2_weights().values()
    if isinstance(recipe.method, FullFF2Config):
        return sum(w.numel() for w in weights)
    return sum(recipe.method.rank * sum(w.shape) for w in weights)


def _bytes_per_number(lm: LanguageModel, recipe: RecipeConfig) -> int:
    method = recipe.method
    is_pure = isinstance(method, FullFF2Config) and method.precision == "bf16_pure"
    kept = torch.bfloat16 if is_pure else torch.float32
    computed = next(iter(lm.ff2_weights().values())).dtype
    return COPIES_PER_PARAMETER * kept.itemsize + (0 if computed == kept else computed.itemsize)


def _saved_bytes_per_token(lm: LanguageModel, recipe: RecipeConfig) -> int:
    kept: dict[int, int] = {}
    tokens = min(PROBE_TOKENS, lm.facts.context_length)
    with _one_variant(lm, recipe):
        owned = {p.untyped_storage().data_ptr() for p in lm.model.parameters()}

        def keep(tensor: Tensor) -> Tensor:
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in owned:
                kept[pointer] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            ids_BT = torch.full((1, tokens), PAD_ID, device=lm.device)
            output = lm.model(input_ids=ids_BT, use_cache=False, logits_to_keep=1)
        del output
    return sum(kept.values()) // tokens


@contextmanager
def _one_variant(lm: LanguageModel, recipe: RecipeConfig) -> Iterator[None]:
    """The model with trainable FF2, in place and without a copy, or with one variant of adapters and their dropout."""
    method = recipe.method
    if isinstance(method, LoraConfig):
        names, dropout = lm.ff2_names, method.dropout
        with GroupedFF2.lora(lm.model, names, [0], rank=method.rank, alpha=method.alpha, dropout=dropout) as adapters:
            adapters.set_dropout([0])
            yield
        return
    weights: Sequence[nn.Parameter] = list(lm.ff2_weights().values())
    try:
        for weight in weights:
            weight.requires_grad_(True)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(False)


@dataclass(frozen=True)
class CapacityItem:
    """Asks how many of the given tasks fit into memory at once. Gives a `Capacity`."""

    longest: UnlearnTask
    recipe: RecipeConfig
    held_out: tuple[Question, ...]

    def answer(self, engine: ModelEngine) -> Capacity:
        """See `capacity`."""
        return capacity(engine.lm, self.longest, self.recipe, engine.config)
