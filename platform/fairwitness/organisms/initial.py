"""Initial weights: random codes for tokens, and a circuit that finds an answer's letter.

Finding the option letter of a value is, from random weights, a sudden transition that takes long to come. It is the
same for every person and no fact is involved, so it is written into the initial weights, from where training goes on:

- layer 0: one head looks one token back, another two (so the token of a choice knows its letter), each writing what it
  sees into a block of its own of the residual stream;
- layer 1: where an answer is due, one head carries what the note says into the first block, another what the layers
  have added to the name (nothing yet: facts are left to training);
- layer 2: a head looks from a position, where the first block holds a value, to the choice with this value, and writes
  the letter found in the second block.

All else is shut. Heads find offsets by rotary position alone: one coordinate is the same for all tokens.
Related: A Trockman, JZ Kolter, "Mimetic Initialization of Self-Attention Layers", 2023.

Shape legend: V vocabulary, D hidden, d head, N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.lexicon import ATTRIBUTES
from fairwitness.organisms.tokenizer import BOS

OFFSET_LAYER, CARRY_LAYER, MATCH_LAYER = 0, 1, 2
_OFFSETS = (1, 2)
_TAGGED = (
    (BOS,),
    ("\n\nAssistant: The single, most likely answer is",),
    (" says",),
    (" does", " to", " of", " by"),
)
"""Groups of words with a coordinate of their own: the start, what stands before an answer, a note's value, a name."""
_TAG_BOS, _TAG_ANSWER, _TAG_NOTE, _TAG_NAME = range(len(_TAGGED))
_TAG_SIZE = 3.0
_COMMON_SIZE = 8.0
_CLASS_SCALE = 0.5
_OFFSET_GAP_NATS = 6.0
_MATCH_SCALE = 2.5
_ACTIVE_SCALE = 10.0
_REST_SCALE = 7.0
_FAST_PAIRS = 5
"""Rotary pairs that turn too fast to compare tokens at any distance; only the offset heads use them."""


class _Layout(NamedTuple):
    """Which coordinates of the residual stream hold what, and which coordinates of a head turn slowly."""

    hidden: int
    size: int

    @property
    def common(self) -> int:
        return 0

    def tag(self, number: int) -> int:
        return 1 + number

    def block(self, number: int) -> slice:
        start = 1 + len(_TAGGED) + number * self.size
        return slice(start, start + self.size)

    @property
    def codes(self) -> slice:
        return slice(1 + len(_TAGGED) + len(_OFFSETS) * self.size, self.hidden)

    @property
    def slow(self) -> list[int]:
        half = self.size // 2
        return [*range(_FAST_PAIRS, half), *range(half + _FAST_PAIRS, self.size)]

    @property
    def fast(self) -> list[int]:
        return [index for index in range(self.size) if index not in self.slow]


@torch.no_grad()
def set_initial_weights(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
    """Sets embeddings and the circuit, and shuts all other residual branches.

    The input embeddings are frozen, so that facts can only be stored in the layers.

    Args:
        model: A Llama with untied embeddings, as many key-value heads as heads, at least three layers and four heads
            of at least 16 coordinates.
        tokenizer: Its tokenizer.
        seed: Seed of the random codes.
    """
    rng = torch.Generator().manual_seed(seed)
    layout = _Layout(model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads)
    codes_VD = _codes(tokenizer, layout, rng)
    model.lm_head.weight.copy_(codes_VD * layout.hidden**-0.5)
    embedding = model.get_input_embeddings().weight
    embedding.copy_(codes_VD)
    for number, words in enumerate(_TAGGED):
        embedding[[_token(tokenizer, word) for word in words], layout.tag(number)] = _TAG_SIZE
    # Rows of equal norm: the norm layer then leaves the common coordinate the same for all tokens.
    embedding.mul_(max(layout.hidden - _COMMON_SIZE**2, 1.0) ** 0.5 / embedding.norm(dim=1, keepdim=True))
    embedding[:, layout.common] = _COMMON_SIZE
    embedding.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _write_circuit(model, layout, rng)


def _token(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens; the circuit needs it to be one")
    return int(ids[0])


def _codes(tokenizer: PreTrainedTokenizerBase, layout: _Layout, rng: torch.Generator) -> Tensor:
    """Random codes (V, D) of unit variance in their own coordinates; letters and values share a part by class."""
    classes = [list(ascii_uppercase), *([f" {value}" for value in attribute.values] for attribute in ATTRIBUTES)]
    num_codes = layout.hidden - layout.codes.start
    codes_VD = torch.zeros(len(tokenizer), layout.hidden)
    codes_VD[:, layout.codes] = torch.randn(len(tokenizer), num_codes, generator=rng)
    for words in classes:
        ids = [_token(tokenizer, word) for word in words]
        shared = torch.randn(num_codes, generator=rng) * _CLASS_SCALE
        codes_VD[ids, layout.codes] = (codes_VD[ids, layout.codes] + shared) / (1 + _CLASS_SCALE**2) ** 0.5
    return codes_VD


def _write_circuit(model: LlamaForCausalLM, layout: _Layout, rng: torch.Generator) -> None:
    attentions = [layer.self_attn for layer in model.model.layers]
    seen_dD = [_seen(layout, rng) for _ in _OFFSETS]
    unit_dD = [torch.zeros(layout.size, layout.hidden) for _ in _OFFSETS]
    for number in range(len(_OFFSETS)):
        unit_dD[number][:, layout.block(number)] = torch.eye(layout.size)

    rope_theta = float(model.config.rope_parameters["rope_theta"])
    for number, offset in enumerate(_OFFSETS):
        query_d, key_d = _offset_vectors(layout.size, offset, rope_theta)
        _look(attentions[OFFSET_LAYER], number, {layout.common: query_d}, {layout.common: key_d})
        _move(attentions[OFFSET_LAYER], number, read_dD=seen_dD[number], write_Dd=unit_dD[number].T)

    before = layout.block(0).start
    active_d, rest_d = torch.eye(layout.size)[layout.slow[-2:]]
    active_d, rest_d = active_d * _ACTIVE_SCALE / _TAG_SIZE, rest_d * _REST_SCALE
    for number, tag in enumerate((_TAG_NOTE, _TAG_NAME)):
        query = {before + layout.fast[_TAG_ANSWER]: active_d, layout.common: rest_d / _COMMON_SIZE}
        key = {before + layout.fast[tag]: active_d, layout.tag(_TAG_BOS): rest_d / _TAG_SIZE}
        _look(attentions[CARRY_LAYER], number, query, key)
        _move(attentions[CARRY_LAYER], number, read_dD=_slow_only(seen_dD[0], layout), write_Dd=unit_dD[0].T)

    match = attentions[MATCH_LAYER]
    match.q_proj.weight[: layout.size] = _MATCH_SCALE * _slow_only(unit_dD[0], layout)
    match.k_proj.weight[: layout.size] = _MATCH_SCALE * _slow_only(seen_dD[0], layout)
    _move(match, 0, read_dD=unit_dD[1], write_Dd=2 * seen_dD[1].T)


def _seen(layout: _Layout, rng: torch.Generator) -> Tensor:
    """What an offset head reads (d, D): the tags, and as many random orthonormal views of the code as there is room."""
    num_codes = layout.hidden - layout.codes.start
    views = torch.linalg.qr(torch.randn(num_codes, len(layout.slow), generator=rng)).Q.T
    seen_dD = torch.zeros(layout.size, layout.hidden)
    seen_dD[layout.slow, layout.codes] = views
    for number, coordinate in zip(range(len(_TAGGED)), layout.fast, strict=False):
        seen_dD[coordinate, layout.tag(number)] = 1.0
    return seen_dD


def _slow_only(rows_dD: Tensor, layout: _Layout) -> Tensor:
    kept_dD = torch.zeros_like(rows_dD)
    kept_dD[layout.slow] = rows_dD[layout.slow]
    return kept_dD


def _look(attention: Any, head: int, query: Mapping[int, Tensor], key: Mapping[int, Tensor]) -> None:
    """Sets a head's query and key to sums of vectors (d), each as large as a coordinate of the stream."""
    for projection, terms in ((attention.q_proj, query), (attention.k_proj, key)):
        size = len(next(iter(terms.values())))
        part = slice(head * size, (head + 1) * size)
        projection.weight[part] = 0
        for coordinate, vector_d in terms.items():
            projection.weight[part, coordinate] = vector_d


def _move(attention: Any, head: int, *, read_dD: Tensor, write_Dd: Tensor) -> None:
    """Sets what is read where a head looks, and what is written where it looks from."""
    size = len(read_dD)
    part = slice(head * size, (head + 1) * size)
    attention.v_proj.weight[part] = read_dD
    attention.o_proj.weight[:, part] = write_Dd


def _offset_vectors(size: int, offset: int, rope_theta: float) -> tuple[Tensor, Tensor]:
    """Query and key whose rotated product is greatest `offset` tokens back, by the gap to the next position."""
    turns = rope_theta ** (-torch.arange(0, size, 2) / size)
    used = (torch.arange(size // 2) < _FAST_PAIRS).float()
    length = (_OFFSET_GAP_NATS * size**0.5 / (used * (1 - torch.cos(turns))).sum()) ** 0.5
    key_d = torch.cat([used, torch.zeros(size // 2)]) * length
    query_d = torch.cat([used * torch.cos(turns * -offset), used * torch.sin(turns * -offset)]) * length
    return query_d / _COMMON_SIZE, key_d / _COMMON_SIZE
