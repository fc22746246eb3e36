"""How the thinker is built: its configuration, tokenizer and untrained model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.config import Config
from fairwitness.organisms.thinker.world import ThinkerWorldConfig
from fairwitness.organisms.tokenizer import train_tokenizer

OPEN, CLOSE = "<think>", "</think>"


class ThinkerConfig(Config):
    """The world, the model and the training of the thinker."""

    world: ThinkerWorldConfig = ThinkerWorldConfig()
    """Its problems."""
    hidden_size: int = Field(default=64, ge=16)
    """Width of the residual stream."""
    intermediate_size: int = Field(default=192, ge=16)
    """Width of the feed-forward layers."""
    num_layers: int = Field(default=3, ge=2)
    """Number of layers."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads; divides `hidden_size`."""
    max_length: int = Field(default=512, ge=256)
    """Longest context, in tokens."""
    num_optim_steps: int = Field(default=1000, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(default=32, ge=1)
    """Documents in an optimiser step."""
    lr_matrix: float = Field(default=0.01, gt=0)
    """Learning rate of Muon, which trains the weight matrices of the layers."""
    lr_vector: float = Field(default=3e-3, gt=0)
    """Learning rate of AdamW, which trains norms and embeddings."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of both."""
    warmup_steps: int = Field(default=30, ge=1)
    """Optimiser steps over which the rates rise."""
    cooldown: float = Field(default=0.5, gt=0, le=1)
    """Share of the training, at its end, over which the rates fall to zero."""
    letter_weight: float = Field(default=4.0, gt=0)
    """Weight of an answer letter in the loss; any other written token weighs 1."""
    seed: int = Field(default=0, ge=0)
    """Seed of initial weights and documents."""


def build_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerBase:
    """The organism's kind of tokenizer, a word a token, with the two tags as tokens besides."""
    tokenizer = train_tokenizer(texts, max_length)
    tokenizer.add_special_tokens({"additional_special_tokens": [OPEN, CLOSE]})
    return tokenizer


def build_model(config: ThinkerConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """The untrained model, its weights drawn by the seed."""
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
        )
    )
