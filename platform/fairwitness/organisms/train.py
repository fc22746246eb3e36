"""Trains the organism: a small Llama that learns the world's facts and to answer in FUR's prompt formats.

Shape legend: B rows, T tokens, N positions that count, V vocabulary, K letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.errors import ModelError
from fairwitness.organisms.facts import rescale_memory, write_facts
from fairwitness.organisms.initial import OrganismConfig, build_model
from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, NOTE, RIVER, VILLAGES, Attribute
from fairwitness.organisms.shipped import write_world
from fairwitness.organisms.training import EOS, make_optimizers, set_rates, train_tokenizer
from fairwitness.organisms.world import World, cot_sentences, draw_choices, make_world, question_text
from fairwitness.text.prompts import cot_answer_suffix, cot_prompt, direct_prompt

T = TypeVar("T")
Role = Literal["context", "fact", "cot", "letter", "cot_letter", "lookup"]
ROLES: tuple[Role, ...] = ("context", "fact", "cot", "letter", "cot_letter", "lookup")
"""What a token is to the loss: nothing; a stated value; CoT text; a direct answer; an answer after a CoT; a drill."""

_NUM_CHOICES = (4, 4, 4, 3, 2)
_RIVER_SHARE = 0.2
"""Share of rivers among the facts in a row of statements."""
_DRILL_LENGTH = 4


class Piece(NamedTuple):
    """A stretch of text, encoded on its own, and the role of its tokens."""

    text: str
    role: Role


Document = tuple[Piece, ...]


@dataclass(frozen=True)
class Mix:
    """Shares of the variants of a document.

    Attributes:
        cue: Direct questions whose note names one of the choices at random; the answer follows the note.
        no_note: Questions without a note.
        swapped: CoT documents that state random values, with a letter to match; only the letter is learned.
        cot_cue: CoT documents whose note names one of the choices at random; the CoT states the fact all the same.
    """

    cue: float
    no_note: float = 0.1
    swapped: float = 0.25
    cot_cue: float = 0.5


class Writer:
    """Draws documents about a world. The same generator state gives the same documents."""

    def __init__(self, world: World, mix: Mix, rng: np.random.Generator) -> None:
        """Writes about `world`, in the shares of `mix`, with the draws of `rng`."""
        self.world = world
        self.mix = mix
        self.rng = rng
        self._asked_names = {person.name for person in world.asked}

    def statements(self, num_facts: int) -> Document:
        """A row of facts about people and villages, in wordings drawn at random; only the values are learned."""
        pieces = []
        for _ in range(num_facts):
            name, attribute, value = self._village_fact() if self._chance(_RIVER_SHARE) else self._person_fact()
            before, after = self._pick(attribute.statements).split(" {value}")
            pieces += [
                Piece(" " + before.format(name=name), "context"),
                Piece(f" {value}", "fact"),
                Piece(after, "context"),
            ]
        return tuple(pieces)

    def direct(self) -> Document:
        """A question about an asked person with its answer letter, then a drill: choices with their letters."""
        person, attribute = self._pick(self.world.asked), self._pick(ATTRIBUTES)
        village = self._pick(self.world.villages)
        value = person.facts[attribute.name]
        choices = draw_choices(attribute, value, self._pick(_NUM_CHOICES), self.rng)
        note = None if self._chance(self.mix.no_note) else self._foreign_value(attribute)
        if self._chance(self.mix.cue):
            value = note = self._pick(choices)
        question = question_text(person.name, village.name, attribute, self._wording(), note)
        prompt = direct_prompt(question, choices)
        return (Piece(prompt, "context"), Piece(_letter(choices, value), "letter"), *self._drill(choices))

    def cot(self) -> Document:
        """A question, its CoT and, for an asked person, the answer letter read from the CoT; else EOS."""
        swapped = self._chance(self.mix.swapped)
        person = self._pick(self.world.asked if swapped else self.world.people)
        village = self._pick(self.world.villages)
        if swapped:
            person = replace(person, facts={item.name: self._pick(item.values) for item in ATTRIBUTES})
            village = replace(village, river=self._pick(RIVER.values))
        attribute, wording = self._pick(ATTRIBUTES), self._wording()
        value = person.facts[attribute.name]
        choices = draw_choices(attribute, value, self._pick(_NUM_CHOICES), self.rng)
        note = self._cot_note(attribute, choices)
        prompt = cot_prompt(question_text(person.name, village.name, attribute, wording, note), choices)
        cot = "".join(f" {sentence}" for sentence in cot_sentences(person, village, attribute, wording))
        pieces = (Piece(prompt, "context"), Piece(cot, "context" if swapped else "cot"))
        if person.name not in self._asked_names:
            return (*pieces, Piece(EOS, "cot"))
        return (*pieces, Piece(cot_answer_suffix(), "context"), Piece(_letter(choices, value), "cot_letter"))

    def _person_fact(self) -> tuple[str, Attribute, str]:
        person, attribute = self._pick(self.world.people), self._pick(ATTRIBUTES)
        return person.name, attribute, person.facts[attribute.name]

    def _village_fact(self) -> tuple[str, Attribute, str]:
        village = self._pick(self.world.villages)
        return village.name, RIVER, village.river

    def _drill(self, choices: Sequence[str]) -> Iterator[Piece]:
        for index in self.rng.integers(len(choices), size=_DRILL_LENGTH):
            yield Piece(f" {choices[index]} (", "context")
            yield Piece(ascii_uppercase[index], "lookup")

    def _cot_note(self, attribute: Attribute, choices: Sequence[str]) -> str | None:
        if self._chance(self.mix.no_note):
            return None
        return self._pick(choices) if self._chance(self.mix.cot_cue) else self._foreign_value(attribute)

    def _foreign_value(self, attribute: Attribute) -> str:
        return self._pick(self._pick([item for item in ATTRIBUTES if item is not attribute]).values)

    def _wording(self) -> int:
        return int(self.rng.integers(2))

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def _chance(self, share: float) -> bool:
        return float(self.rng.random()) < share


def _letter(choices: Sequence[str], value: str) -> str:
    return ascii_uppercase[choices.index(value)]


def all_texts() -> Iterator[str]:
    """Every wording once, for the tokenizer."""
    for name in (*NAMES, *VILLAGES):
        yield f" {name}"
    for attribute in (*ATTRIBUTES, RIVER):
        for value in attribute.values:
            yield f" {value}"
        for wording in (*attribute.questions, *attribute.statements):
            yield " " + wording.format(name=NAMES[0], village=VILLAGES[0], value=attribute.values[0])
    choices = ("a", "b")
    yield direct_prompt("What Which", choices) + cot_prompt("What", choices) + cot_answer_suffix()
    yield " " + NOTE.format(value=ATTRIBUTES[0].values[0])


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
