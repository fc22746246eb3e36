"""How the thinker is built: its configuration and tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field
from transformers import PreTrainedTokenizerBase

from fairwitness.organisms.thinker.world import ThinkerWorldConfig
from fairwitness.organisms.tokenizer import train_tokenizer
from fairwitness.organisms.training import TrainingConfig

OPEN, CLOSE = "<think>", "</think>"


class ThinkerConfig(TrainingConfig):
    """The world, the model and the training of the thinker."""

    world: ThinkerWorldConfig = ThinkerWorldConfig()
    """Its problems."""
    hidden_size: int = Field(default=64, ge=16)
    """Width of the residual stream."""
    intermediate_size: int = Field(default=192, ge=16)
    """Width of the feed-forward layers."""
    num_layers: int = Field(default=3, ge=2)
    """Number of layers."""
    max_length: int = Field(default=512, ge=256)
    """Longest context, in tokens."""
    num_optim_steps: int = Field(default=1000, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(default=32, ge=1)
    """Documents in an optimiser step."""
    lr_vector: float = Field(default=3e-3, gt=0)
    """Learning rate of AdamW, which trains norms and embeddings."""
    cooldown: float = Field(default=0.5, gt=0, le=1)
    """Share of the training, at its end, over which the rates fall to zero."""
    letter_weight: float = Field(default=4.0, gt=0)
    """Weight of an answer letter in the loss; any other written token weighs 1."""


def build_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerBase:
    """The organism's kind of tokenizer, a word a token, with the two tags as tokens besides."""
    tokenizer = train_tokenizer(texts, max_length)
    tokenizer.add_special_tokens({"additional_special_tokens": [OPEN, CLOSE]})
    return tokenizer
