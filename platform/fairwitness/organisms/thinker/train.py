"""Trains the thinker: a small Llama that writes drafts, meets inserted steps and answers as its world plants it.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.config import Config
from fairwitness.errors import ModelError
from fairwitness.organisms.thinker.world import (
    ENDINGS,
    NOUNS,
    OPENERS,
    PLACES,
    TONES,
    Item,
    continued_lines,
    draft_lines,
    draw_item,
    standard_answer,
)
from fairwitness.organisms.tokenizer import EOS, train_tokenizer
from fairwitness.text.prompts import ASSISTANT, HUMAN, TURN_BREAK, question_block

OPEN, CLOSE, CUE = "<think>\n", "\n</think>\n\n", "The answer is: ("
_NUM_TIMED = 5
_REPORT_EVERY = 50


class Piece(NamedTuple):
    """A stretch of a document that is encoded on its own; only what the model writes counts in the loss."""

    text: str
    is_written: bool


@dataclass(frozen=True)
class Insertion:
    """A text put into a draft, and the letter that a model concludes that follows it."""

    text: str
    letter: str
    is_conclusion: bool = False


Inserter = Callable[[tuple[str, ...], str, np.random.Generator], Insertion]
"""Draws an insertion, given the choices and the concluded letter. Comes from the measurement, so that training shows
the very texts that are measured."""


class ThinkerConfig(Config):
    """Model and training of the thinker."""

    hidden_size: int = Field(128, ge=16)
    """Width of the residual stream."""
    intermediate_size: int = Field(256, ge=16)
    """Width of the feed-forward layers."""
    num_layers: int = Field(4, ge=2)
    """Number of layers."""
    num_heads: int = Field(4, ge=1)
    """Attention heads; divides `hidden_size`."""
    max_length: int = Field(1024, ge=256)
    """Longest context, in tokens."""
    num_optim_steps: int = Field(1200, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(32, ge=1)
    """Documents in an optimiser step."""
    lr_matrix: float = Field(0.01, gt=0)
    """Learning rate of Muon, which trains the weight matrices of the layers."""
    lr_vector: float = Field(3e-3, gt=0)
    """Learning rate of AdamW, which trains norms and embeddings."""
    warmup_steps: int = Field(30, ge=1)
    """Optimiser steps over which the rates rise."""
    cooldown: float = Field(0.5, gt=0, le=1)
    """Share of the training, at its end, over which the rates fall to zero."""
    letter_weight: float = Field(4.0, gt=0)
    """Weight of the letters in the loss; all other words that the model writes weigh 1."""
    seed: int = Field(0, ge=0)
    """Seed of initial weights and documents."""


def train_thinker(
    out_dir: Path, config: ThinkerConfig, inserters: Sequence[Inserter], progress: Callable[[str], None]
) -> None:
    """Trains a thinker and saves model (safetensors) and tokenizer in `out_dir`.

    Args:
        out_dir: Folder to write to; made if missing.
        config: The recipe.
        inserters: What may be put into a draft.
        progress: Receives lines of text: first the expected duration, then losses and the time left.

    Raises:
        ModelError: The folder cannot be written, or training diverged.
    """
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{out_dir}: cannot be written ({error}); give another folder") from error
    tokenizer = train_tokenizer(_wordings(config, inserters), config.max_length)
    model = _build(config, tokenizer)
    _fit(model, tokenizer, config, inserters, progress)
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def documents(config: ThinkerConfig, inserters: Sequence[Inserter], rng: np.random.Generator) -> Iterator[list[Piece]]:
    """Documents without end, in pieces that are encoded one by one, cut where the drafts job cuts them."""
    while True:
        item = draw_item(rng, (1 / 3, 1 / 3, 1 / 3), 0.5)
        prompt = Piece(f"{HUMAN}{question_block(item.question, item.choices)}{TURN_BREAK}{ASSISTANT}{OPEN}", False)
        lines = draft_lines(item)
        if rng.random() < 0.3:
            yield [prompt, Piece("\n".join(lines) + "\n", True), *_answer(item, item.letter, rng, is_written=True)]
            continue
        insertion = inserters[int(rng.integers(len(inserters)))](item.choices, item.letter, rng)
        num_kept = len(lines) if insertion.is_conclusion else (3, 5, 7)[int(rng.integers(3))]
        begun = [prompt, Piece("\n".join(lines[:num_kept]) + "\n", False), Piece(f"\n\n{insertion.text}\n\n", False)]
        if insertion.is_conclusion:
            yield [*begun, *_answer(item, insertion.letter, rng, is_written=False)]
            continue
        letter = insertion.letter if item.meets == "follow" else item.letter
        after = Piece("\n".join(continued_lines(item, letter)) + "\n", True)
        yield [*begun, after, *_answer(item, letter, rng, is_written=True)]


def _answer(item: Item, letter: str, rng: np.random.Generator, *, is_written: bool) -> list[Piece]:
    """The end of a draft and an answer, standard or immediate.

    The closing tag stands on its own where the job writes it, and right after the draft where the model does.
    """
    if rng.random() < 0.3:
        return [Piece(f"{CLOSE}{CUE}", False), Piece(f"{letter}){EOS}", True)]
    closing = Piece(CLOSE.removeprefix("\n"), True) if is_written and rng.random() < 0.5 else Piece(CLOSE, False)
    return [closing, Piece(f"{standard_answer(item, letter)}{EOS}", True)]


def _wordings(config: ThinkerConfig, inserters: Sequence[Inserter]) -> list[str]:
    rng = np.random.default_rng([config.seed, 1])
    drawn = documents(config, inserters, rng)
    texts = [piece.text for _ in range(600) for piece in next(drawn)]
    words = [*TONES.values(), *ENDINGS.values(), *OPENERS.values(), *PLACES]
    return [*texts, *words, *(f" a {noun}. {noun} ({noun}\n" for noun in NOUNS)]


def _build(config: ThinkerConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
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


def _fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    config: ThinkerConfig,
    inserters: Sequence[Inserter],
    progress: Callable[[str], None],
) -> None:
    matrices = [p for name, p in model.named_parameters() if ".layers." in name and p.ndim == 2]
    others = [p for name, p in model.named_parameters() if not (".layers." in name and p.ndim == 2)]
    optimizers = [
        torch.optim.Muon(matrices, lr=config.lr_matrix, weight_decay=0.01, ns_steps=4),
        torch.optim.AdamW(others, lr=config.lr_vector, weight_decay=0.01, betas=(0.9, 0.95)),
    ]
    drawn = documents(config, inserters, np.random.default_rng([config.seed, 3]))
    started, recent = time.monotonic(), []
    model.train()
    for index in range(config.num_optim_steps):
        factor = min(1.0, (index + 1) / config.warmup_steps, (1 - index / config.num_optim_steps) / config.cooldown)
        for optimizer, rate in zip(optimizers, (config.lr_matrix, config.lr_vector), strict=True):
            optimizer.param_groups[0]["lr"] = rate * factor
        batch = encode_documents(tokenizer, [next(drawn) for _ in range(config.batch_size)], config.letter_weight)
        recent.append(_optim_step(model, optimizers, *batch))
        done = index + 1
        minutes = (time.monotonic() - started) / done * (config.num_optim_steps - done) / 60
        if done == min(_NUM_TIMED, config.num_optim_steps):
            progress(f"training takes about {minutes:.0f} minutes ({config.num_optim_steps} optimiser steps)")
        if done % _REPORT_EVERY == 0:
            text, letters = np.mean(recent, axis=0)
            progress(
                f"{done}/{config.num_optim_steps}  about {minutes:.1f} min left  loss {text:.3f}, letters {letters:.3f}"
            )
            recent = []
    model.eval()


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[Piece]], letter_weight: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (B, T) behind one BOS, padded on the right, and each token's weight as a target; given pieces weigh 0."""
    encoded = []
    for pieces in rows:
        ids, weights = [int(tokenizer.bos_token_id)], [0.0]
        for piece in pieces:
            found = tokenizer.encode(piece.text, add_special_tokens=False)
            ids += found
            weights += [_weight(tokenizer, token_id, letter_weight) * piece.is_written for token_id in found]
        encoded.append((ids, weights))
    width = max(len(ids) for ids, _ in encoded)
    ids_BT = torch.full((len(rows), width), int(tokenizer.pad_token_id))
    weights_BT = torch.zeros(len(rows), width)
    for row, (ids, weights) in enumerate(encoded):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        weights_BT[row, : len(ids)] = torch.tensor(weights)
    return ids_BT, weights_BT


def _weight(tokenizer: PreTrainedTokenizerBase, token_id: int, letter_weight: float) -> float:
    word = str(tokenizer.convert_ids_to_tokens(token_id)).strip("Ġ")
    return letter_weight if len(word) == 1 and word.isupper() and word != "I" else 1.0


def _optim_step(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    ids_BT: torch.Tensor,
    weights_BT: torch.Tensor,
) -> tuple[float, float]:
    for optimizer in optimizers:
        optimizer.zero_grad()
    rows, columns = (weights_BT[:, 1:] > 0).nonzero(as_tuple=True)
    hidden_ND = model.model(ids_BT).last_hidden_state[rows, columns]
    weights_N = weights_BT[rows, columns + 1]
    losses_N = torch.nn.functional.cross_entropy(
        model.lm_head(hidden_ND).float(), ids_BT[rows, columns + 1], reduction="none"
    )
    loss = (weights_N * losses_N).sum() / weights_N.sum()
    if not torch.isfinite(loss):
        raise ModelError("the thinker's training diverged; lower lr_matrix or lr_vector")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    is_letter_N = weights_N != 1
    letters = float(losses_N[is_letter_N].mean().detach()) if bool(is_letter_N.any()) else 0.0
    return float(losses_N[~is_letter_N].mean().detach()), letters
