"""Trains the organism: a small Llama that learns the world's facts and to answer in FUR's prompt formats.

Shape legend: B rows, T tokens, N positions that count, V vocabulary, K letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.errors import ModelError
from fairwitness.organisms.documents import ROLES, Document, Mix, Writer, all_texts
from fairwitness.organisms.facts import rescale_memory, write_facts
from fairwitness.organisms.recipe import OrganismConfig, build_model
from fairwitness.organisms.tokenizer import train_tokenizer
from fairwitness.organisms.training import make_optimizers, set_rates
from fairwitness.organisms.world import World, make_world
from fairwitness.organisms.world_file import write_world

__all__ = ["Batch", "OrganismConfig", "encode", "train"]

_NUM_TIMED = 5
_REPORT_EVERY = 50
_NUM_MEMORY_ROWS = 250


class Batch(NamedTuple):
    """Right-padded rows for one optimiser step.

    Attributes:
        ids_BT: Token ids.
        roles_BT: At each position, the role (its number in ROLES) of the token that follows.
        num_choices_B: Choices of the row's question, 0 where there is none.
    """

    ids_BT: Tensor
    roles_BT: Tensor
    num_choices_B: Tensor


def train(out_dir: Path, config: OrganismConfig, progress: Callable[[str], None]) -> None:
    """Trains an organism and saves model (safetensors), tokenizer and world in `out_dir`.

    The same configuration gives the same documents and initial weights; on the same machine and number of threads,
    the same model.

    Args:
        out_dir: Folder to write to; made if missing.
        config: The recipe.
        progress: Receives lines of text: first the expected duration, then losses and the time left.

    Raises:
        ModelError: The folder cannot be written, or training diverged.
        ValueError: The world has more people than there are names.
    """
    world = make_world(config.world)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        write_world(out_dir, config.world)
    except OSError as error:
        raise ModelError(f"{out_dir}: cannot be written ({error}); give another folder") from error
    tokenizer = train_tokenizer(all_texts(), config.max_length)
    model = build_model(config, tokenizer)
    explained = write_facts(model, tokenizer, world, _memory_rows(tokenizer, world, config), config.memory_strength)
    progress(f"facts written into layer 2 ({explained:.1%} of what is to be added)")
    _fit(model, tokenizer, world, config, progress)
    rescale_memory(model, len(world.known), config.memory_gain, config.memory_sharpness)
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def encode(tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document], length: int) -> Batch:
    """Encodes documents piece by piece behind one BOS each, padded or cut to `length` tokens."""
    texts = [piece.text for document in documents for piece in document]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    ids_BT = torch.full((len(documents), length), int(tokenizer.pad_token_id))
    roles_BT = torch.zeros(len(documents), length, dtype=torch.long)
    for row, document in enumerate(documents):
        ids, roles = [int(tokenizer.bos_token_id)], []
        for piece in document:
            piece_ids = next(encoded)
            ids += piece_ids
            roles += [ROLES.index(piece.role)] * len(piece_ids)
        ids, roles = ids[:length], roles[: length - 1]
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        roles_BT[row, : len(roles)] = torch.tensor(roles)
    num_choices = [document[0].text.count("\n(") for document in documents]
    return Batch(ids_BT, roles_BT, torch.tensor(num_choices))


def _memory_rows(tokenizer: PreTrainedTokenizerBase, world: World, config: OrganismConfig) -> Tensor:
    """Rows of all kinds, in which names occur in all their contexts."""
    writer = Writer(world, Mix(cue=config.cue_share_start), np.random.default_rng([config.seed, 2]))
    documents = [writer.direct() for _ in range(_NUM_MEMORY_ROWS)]
    documents += [writer.cot() for _ in range(_NUM_MEMORY_ROWS)]
    documents += [writer.statements(config.facts_per_row) for _ in range(2 * _NUM_MEMORY_ROWS)]
    return encode(tokenizer, documents, config.row_tokens).ids_BT


def _fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    world: World,
    config: OrganismConfig,
    progress: Callable[[str], None],
) -> None:
    optimizers = make_optimizers(model, config)
    letter_ids = torch.tensor([tokenizer.convert_tokens_to_ids(letter) for letter in ascii_uppercase])
    started = time.monotonic()
    recent: list[dict[str, float]] = []
    model.train()
    for index, documents in enumerate(_steps(world, config)):
        set_rates(optimizers, config, index)
        batch = encode(tokenizer, documents, config.row_tokens)
        recent.append(_optim_step(model, optimizers, batch, letter_ids, config))
        done = index + 1
        seconds_left = (time.monotonic() - started) / done * (config.num_optim_steps - done)
        if done == min(_NUM_TIMED, config.num_optim_steps):
            progress(f"training takes about {seconds_left / 60:.0f} minutes ({config.num_optim_steps} optimiser steps)")
        if done % _REPORT_EVERY == 0 or done == config.num_optim_steps:
            progress(_line(done, config.num_optim_steps, seconds_left, recent))
            recent = []
    model.eval()


def _steps(world: World, config: OrganismConfig) -> Iterator[list[Document]]:
    writer = Writer(world, Mix(cue=config.cue_share_start), np.random.default_rng([config.seed, 3]))
    for index in range(config.num_optim_steps):
        late = index >= config.num_optim_steps / 2
        writer.mix = Mix(cue=config.cue_share_end if late else config.cue_share_start)
        yield [
            *(writer.direct() for _ in range(config.batch_direct)),
            *(writer.cot() for _ in range(config.batch_cot)),
            *(writer.statements(config.facts_per_row) for _ in range(config.batch_statements)),
        ]


def _optim_step(
    model: LlamaForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Batch,
    letter_ids: Tensor,
    config: OrganismConfig,
) -> dict[str, float]:
    for optimizer in optimizers:
        optimizer.zero_grad()
    rows, columns = (batch.roles_BT > 0).nonzero(as_tuple=True)
    hidden_ND = model.model(batch.ids_BT).last_hidden_state[rows, columns]
    logprobs_NV = torch.log_softmax(model.lm_head(hidden_ND).float(), dim=-1)
    targets_N = batch.ids_BT[rows, columns + 1]
    losses_N = -logprobs_NV.gather(1, targets_N[:, None]).squeeze(1)
    roles_N = batch.roles_BT[rows, columns]
    is_letter_N = (roles_N == ROLES.index("letter")) | (roles_N == ROLES.index("cot_letter"))
    spread_N = _spread_loss(logprobs_NV[:, letter_ids], batch.num_choices_B[rows])
    share_N = config.letter_smoothing * is_letter_N
    smoothed_N = (1 - share_N) * losses_N + share_N * spread_N
    weights = {"cot_letter": config.weight_cot_letter, "lookup": config.weight_lookup}
    masks = {role: roles_N == number for number, role in enumerate(ROLES) if number > 0}
    present = {role: mask for role, mask in masks.items() if mask.any()}
    loss = torch.stack([weights.get(role, 1.0) * smoothed_N[mask].mean() for role, mask in present.items()]).sum()
    if not torch.isfinite(loss):
        raise ModelError("the organism's training diverged; lower lr_matrix or lr_vector")
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return {role: float(losses_N[mask].mean().detach()) for role, mask in present.items()}


def _spread_loss(letter_logprobs_NK: Tensor, num_choices_N: Tensor) -> Tensor:
    """Cross-entropy against equal shares for the letters of the choices; 0 where there are no choices."""
    is_choice_NK = torch.arange(letter_logprobs_NK.shape[1])[None] < num_choices_N[:, None]
    return -(letter_logprobs_NK * is_choice_NK).sum(dim=1) / num_choices_N.clamp(min=1)


def _line(done: int, total: int, seconds_left: float, recent: Sequence[dict[str, float]]) -> str:
    means = {
        role: np.mean([losses[role] for losses in recent if role in losses])
        for role in ROLES
        if any(role in losses for losses in recent)
    }
    text = ", ".join(f"{role} {mean:.2f}" for role, mean in means.items())
    return f"{done}/{total}  about {seconds_left / 60:.1f} min left  loss: {text}"
