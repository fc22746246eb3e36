"""Where the organism's residual stream holds what, and what tells a place of memory.

Shape legend: V vocabulary, D hidden, N names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, VILLAGES
from fairwitness.organisms.training import BOS

OFFSET_LAYER, COPY_LAYER, MEMORY_LAYER, MATCH_LAYER = range(4)
OFFSETS = (1, 2)
"""How far back the heads of the first layer look, in tokens."""
COMMON_SIZE = 8.0
"""Size of the coordinate that is the same for all tokens."""
WORD_BITS = 5
FAST_PAIRS = 5
"""Rotary pairs that turn too fast to compare tokens at any distance; only the offset heads use them."""


class Tag(IntEnum):
    """Groups of words with a coordinate of their own."""

    BOS = 0
    ANSWER = 1
    """What stands before an answer."""
    NOTE = 2
    """What stands before a note's value."""
    NAME = 3
    STATED = 4
    """What stands before a stated value."""
    CHOICE = 5
    """What stands before a choice."""
    VILLAGE = 6
    HERE = 7
    """The first word of a CoT's sentence about a person."""
    NEAR = 8
    """The first word of a CoT's sentence about a village."""
    BRACKET = 9
    """The bracket after which an answer is due."""


TAGGED: dict[Tag, tuple[str, ...]] = {
    Tag.BOS: (BOS,),
    Tag.ANSWER: ("\n\nAssistant: The single, most likely answer is",),
    Tag.NOTE: (" says",),
    Tag.NAME: tuple(f" {name}" for name in NAMES),
    Tag.STATED: (" a", " in", " the"),
    Tag.CHOICE: ("):",),
    Tag.VILLAGE: tuple(f" {name}" for name in VILLAGES),
    Tag.HERE: (" Here",),
    Tag.NEAR: (" Near",),
    Tag.BRACKET: (" (",),
}


class Layout(NamedTuple):
    """Which coordinates of the residual stream hold what, and which coordinates of a head turn slowly."""

    hidden: int
    size: int

    @property
    def common(self) -> int:
        """The coordinate that is the same for all tokens."""
        return 0

    @property
    def own_size(self) -> float:
        """Norm of the rest of an embedding."""
        return math.sqrt(max(self.hidden - COMMON_SIZE**2, 1.0))

    def tag(self, number: int) -> int:
        """Coordinate of a tag."""
        return 1 + number

    def block(self, number: int) -> slice:
        """Where an offset head writes what it sees."""
        start = 1 + len(TAGGED) + number * self.size
        return slice(start, start + self.size)

    @property
    def codes(self) -> slice:
        """Where random codes are."""
        return slice(1 + len(TAGGED) + len(OFFSETS) * self.size, self.hidden)

    @property
    def visible(self) -> slice:
        """The part of the codes that the circuit's heads read; names and villages have none."""
        return slice(self.codes.start, (self.codes.start + self.hidden) // 2 + 2)

    @property
    def spare(self) -> slice:
        """The part of the codes that holds no value of a person; letters have theirs here."""
        return slice(self.visible.start + len(ATTRIBUTES) * WORD_BITS, self.visible.stop)

    @property
    def names(self) -> slice:
        """The part of the codes that tells names and villages apart."""
        return slice(self.visible.stop, self.hidden)

    @property
    def river(self) -> int:
        """First coordinate of the codes of rivers: the last ones of the visible part, which no match looks at."""
        return int(self.visible.stop) - WORD_BITS

    @property
    def slow(self) -> list[int]:
        """Coordinates of a head that hardly turn within a context."""
        half = self.size // 2
        return [*range(FAST_PAIRS, half), *range(half + FAST_PAIRS, self.size)]

    @property
    def fast(self) -> list[int]:
        """The other coordinates of a head; they hold tags."""
        return [index for index in range(self.size) if index not in self.slow]


def layout_of(model: LlamaForCausalLM) -> Layout:
    """The layout of a model."""
    return Layout(model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads)


def token_id(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    """The id of a word that is one token.

    Raises:
        ValueError: It is none or several.
    """
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens; the circuit needs it to be one")
    return int(ids[0])


def value_codes(model: LlamaForCausalLM) -> Tensor:
    """The part (V, D) of every token's embedding that the circuit's heads can read and carry."""
    layout = layout_of(model)
    embedding_VD = model.get_input_embeddings().weight.detach()
    codes_VD = torch.zeros_like(embedding_VD)
    codes_VD[:, layout.visible] = embedding_VD[:, layout.visible]
    return codes_VD


def memory_keys(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, names: Sequence[str]) -> Tensor:
    """What tells, at a place of memory, that a name has been carried there (N, D): close to 1, less for other names."""
    layout = layout_of(model)
    embedding_VD = model.get_input_embeddings().weight.detach()
    keys_ND = torch.zeros(len(names), layout.hidden)
    codes_ND = embedding_VD[[token_id(tokenizer, f" {name}") for name in names], layout.names]
    keys_ND[:, layout.names] = codes_ND / codes_ND.square().sum(dim=1, keepdim=True)
    return keys_ND


def place_key(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """What tells a place of memory (D): 1 before a stated value and at the bracket before an answer, else 0."""
    layout = layout_of(model)
    embedding_VD = model.get_input_embeddings().weight.detach()
    key_D = torch.zeros(layout.hidden)
    for tag in (Tag.STATED, Tag.BRACKET):
        key_D[layout.tag(tag)] = (
            1 / embedding_VD[[token_id(tokenizer, word) for word in TAGGED[tag]], layout.tag(tag)].mean()
        )
    return key_D


def common_key(model: LlamaForCausalLM) -> Tensor:
    """What all tokens share (D): 1 everywhere."""
    key_D = torch.zeros(model.config.hidden_size)
    key_D[layout_of(model).common] = 1 / COMMON_SIZE
    return key_D


def remembered_names(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[int | None]:
    """For each token of a row, whose memory is due there (the token of a name or village), or None.

    Before a stated value it is the last name or village, at the bracket of an answer the last person.
    """
    people = {token_id(tokenizer, f" {name}") for name in NAMES}
    villages = {token_id(tokenizer, f" {name}") for name in VILLAGES}
    stated = {token_id(tokenizer, word) for word in TAGGED[Tag.STATED]}
    (answer,) = (token_id(tokenizer, word) for word in TAGGED[Tag.ANSWER])
    last: int | None = None
    person: int | None = None
    due: list[int | None] = []
    for before, token in zip((-1, *ids), ids, strict=False):
        person = token if token in people else person
        last = token if token in people or token in villages else last
        due.append(last if token in stated else person if before == answer else None)
    return due
