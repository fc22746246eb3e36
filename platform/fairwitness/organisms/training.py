"""What the recipes of the organisms share: sizes and rates, an untrained Llama, optimisers and their schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.config import Config


class TrainingConfig(Config):
    """The part of a recipe that every organism has. Each recipe gives its own sizes and lengths of training."""

    hidden_size: int = Field(ge=16)
    """Width of the residual stream."""
    intermediate_size: int = Field(ge=16)
    """Width of the feed-forward layers."""
    num_layers: int = Field(ge=1)
    """Number of layers."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads; divides `hidden_size`."""
    max_length: int = Field(ge=1)
    """Longest context, in tokens."""
    num_optim_steps: int = Field(ge=1)
    """Optimiser steps."""
    lr_matrix: float = Field(default=0.01, gt=0)
    """Learning rate of Muon, which trains the weight matrices of the layers."""
    lr_vector: float = Field(gt=0)
    """Learning rate of AdamW, which trains all else."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of both."""
    warmup_steps: int = Field(default=30, ge=1)
    """Optimiser steps over which the rates rise."""
    cooldown: float = Field(gt=0, le=1)
    """Share of the training, at its end, over which the rates fall to zero."""
    seed: int = Field(default=0, ge=0)
    """Seed of initial weights and documents."""


def untrained_llama(config: TrainingConfig, tokenizer: PreTrainedTokenizerBase, **others: Any) -> LlamaForCausalLM:
    """A Llama of the recipe's size, its weights drawn by the seed.

    Args:
        config: The recipe.
        tokenizer: Its tokenizer.
        others: Further settings of `LlamaConfig`.
    """
    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            max_position_embeddings=config.max_length,
            initializer_range=config.hidden_size**-0.5,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            **others,
        )
    )


def make_optimizers(model: LlamaForCausalLM, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the rest that is trained."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    matrices = [p for name, p in trained.items() if ".layers." in name and p.ndim == 2]
    others = [p for name, p in trained.items() if not (".layers." in name and p.ndim == 2)]
    return [
        torch.optim.Muon(matrices, lr=config.lr_matrix, weight_decay=config.weight_decay, ns_steps=4),
        torch.optim.AdamW(others, lr=config.lr_vector, weight_decay=config.weight_decay, betas=(0.9, 0.95)),
    ]


def set_rates(optimizers: Sequence[torch.optim.Optimizer], config: TrainingConfig, index: int) -> None:
    """Sets the rates of one optimiser step: they rise over the warm-up and fall to zero over the cooldown."""
    rise = min(1.0, (index + 1) / config.warmup_steps)
    fall = min(1.0, (1 - index / config.num_optim_steps) / config.cooldown)
    for optimizer, rate in zip(optimizers, (config.lr_matrix, config.lr_vector), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * rise * fall
