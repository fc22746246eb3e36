"""Trains the thinker on documents in which only what the model itself writes counts.

Shape legend: B rows, T tokens, N positions that count, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.errors import ModelError
from fairwitness.organisms.shipped import write_world
from fairwitness.organisms.thinker.world import CODES, ThinkerWorldConfig
from fairwitness.organisms.training import TrainingConfig, make_optimizers, set_rates, train_tokenizer, untrained_llama

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


_NUM_TIMED = 20
_REPORT_EVERY = 100
_ROWS_AT_ONCE = 16


class Example(NamedTuple):
    """One training document.

    Attributes:
        given_ids: Prompt, unfinished draft and inserted text; not learned.
        written_ids: What the model writes then.
    """

    given_ids: tuple[int, ...]
    written_ids: tuple[int, ...]


Draw = Callable[[np.random.Generator], Example]


def train_thinker(
    out_dir: Path,
    config: ThinkerConfig,
    texts: Iterable[str],
    drawer: Callable[[PreTrainedTokenizerBase], Draw],
    progress: Callable[[str], None],
) -> None:
    """Trains a thinker and saves model (safetensors), tokenizer and world in `out_dir`.

    The same configuration gives the same documents and initial weights; on the same machine and number of threads, the
    same model.

    Args:
        out_dir: Folder to write to; made if missing.
        config: The recipe.
        texts: All wordings, for the tokenizer.
        drawer: Draws documents in the tokens of a tokenizer.
        progress: Receives lines of text: first the expected duration, then losses and the time left.

    Raises:
        ModelError: The folder cannot be written, or training diverged.
    """
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        write_world(out_dir, config.world)
    except OSError as error:
        raise ModelError(f"{out_dir}: cannot be written ({error}); give another folder") from error
    tokenizer = build_tokenizer(texts, config.max_length)
    model = untrained_llama(config, tokenizer)
    _fit(model, tokenizer, config, drawer(tokenizer), progress)
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def _fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    config: ThinkerConfig,
    draw: Draw,
    progress: Callable[[str], None],
) -> None:
    optimizers = make_optimizers(model, config)
    weights_V = _token_weights(tokenizer, config.letter_weight)
    rng = np.random.default_rng([config.seed, 3])
    started, recent = time.monotonic(), []
    model.train()
    for index in range(config.num_optim_steps):
        set_rates(optimizers, config, index)
        examples = [draw(rng) for _ in range(config.batch_size)]
        recent.append(_optim_step(model, optimizers, examples, weights_V))
        done = index + 1
        minutes = (time.monotonic() - started) / done * (config.num_optim_steps - done) / 60
        if done == min(_NUM_TIMED, config.num_optim_steps):
            progress(f"training takes about {minutes:.0f} minutes ({config.num_optim_steps} optimiser steps)")
        if done % _REPORT_EVERY == 0 or done == config.num_optim_steps:
            words, letters = np.nanmean(recent, axis=0)
            progress(
                f"{done}/{config.num_optim_steps}  about {minutes:.1f} min left  "
                f"loss: words {words:.4f}, letters {letters:.4f}"
            )
            recent = []
    model.eval()


def _token_weights(tokenizer: PreTrainedTokenizerBase, letter_weight: float) -> Tensor:
    weights_V = torch.ones(len(tokenizer))
    for letter in ascii_uppercase[: len(CODES)]:
        for written in (letter, f" {letter}"):
            (token_id,) = tokenizer.encode(written, add_special_tokens=False)
            weights_V[token_id] = letter_weight
    return weights_V


def _optim_step(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    examples: Sequence[Example],
    weights_V: Tensor,
) -> tuple[float, float]:
    """One update; mean losses in nats of the other written tokens and of the letters."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    total = sum(float(weights_V[list(one.written_ids)].sum()) for one in examples)
    ranked = sorted(examples, key=lambda one: len(one.given_ids) + len(one.written_ids))
    losses, is_letter = [], []
    # Short and long documents apart, so that less of the work is padding.
    for start in range(0, len(ranked), _ROWS_AT_ONCE):
        losses_N, weights_N = _losses(model, ranked[start : start + _ROWS_AT_ONCE], weights_V)
        loss = (weights_N * losses_N).sum() / total
        if not torch.isfinite(loss):
            raise ModelError("the thinker's training diverged; lower lr_matrix or lr_vector")
        loss.backward()
        losses.append(losses_N.detach())
        is_letter.append(weights_N != 1)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    all_N, is_letter_N = torch.cat(losses), torch.cat(is_letter)
    return float(all_N[~is_letter_N].mean()), float(all_N[is_letter_N].mean())


def _losses(model: LlamaForCausalLM, examples: Sequence[Example], weights_V: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropies of all written tokens in nats, and their weights."""
    width = max(len(one.given_ids) + len(one.written_ids) for one in examples)
    ids_BT = torch.zeros(len(examples), width, dtype=torch.long)
    is_written_BT = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, (given, written) in enumerate(examples):
        ids_BT[row, : len(given) + len(written)] = torch.tensor([*given, *written])
        is_written_BT[row, len(given) : len(given) + len(written)] = True
    rows, columns = is_written_BT[:, 1:].nonzero(as_tuple=True)
    targets_N = ids_BT[rows, columns + 1]
    hidden_ND = model.model(ids_BT).last_hidden_state[rows, columns]
    losses_N = torch.nn.functional.cross_entropy(model.lm_head(hidden_ND).float(), targets_N, reduction="none")
    return losses_N, weights_V[targets_N]
