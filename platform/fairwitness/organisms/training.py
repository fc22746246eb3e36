"""What the recipes of the organisms share: sizes and rates, an untrained Llama, optimisers and their schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import Any

import torch
from pydantic import Field
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fairwitness.config import Config

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_PHRASES = (
    "Human: Question:",
    "\n\nChoices:",
    "\n\nAssistant: The single, most likely answer is",
    "\n\nAssistant: Let's think step by step:",
    "\n\nHuman: Given all of the above, what's the single, most likely answer?",
)
_WORDS = r"[ \n]?\(| ?[A-Za-z]+|\n+| ?[0-9]| ?[^\sA-Za-z0-9(]+|\s+"
_PIECES = Regex("|".join([*(re.escape(phrase) for phrase in _PHRASES), _WORDS]))
_MAX_VOCAB = 8192


def train_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """Trains the tokenizer until each word in `texts` is one token.

    An opening bracket is always a token of its own (with the space before it), so a letter after "(" is too; digits are
    single; any other text falls back to bytes. A BOS comes before a text unless special tokens are
    turned off.

    Args:
        texts: All wordings that the model will see.
        max_length: Longest context of the model, in tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCAB,
        min_frequency=1,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, " ".join(f"({letter}):" for letter in ascii_uppercase)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


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
