"""Initial weights: random codes for tokens, and a circuit that finds an answer's letter.

Finding the option letter of a value is, from random weights, a sudden transition that takes long to come. It is the
same for every person and no fact is involved, so it is written into the initial weights, from where training goes on:

- layer 0: one head looks one token back, another two (so the token of a choice knows its letter), each writing what it
  sees into a block of its own of the residual stream;
- layer 1: where an answer is due, one head carries what the note says into the first block, another what layer 0 has
  added to the name (nothing yet: facts are left to training), a third what a CoT states; where a value is about to be
  stated, a fourth carries what layer 0 has added to the last name into the codes that predict the next token;
- layer 2: a head looks from a position, where the first block holds a value, to the choice with this value, and writes
  the letter found in the second block; where a sentence of a CoT is due, another copies the name.

All else is shut. Heads find offsets by rotary position alone: one coordinate is the same for all tokens.
Related: A Trockman, JZ Kolter, "Mimetic Initialization of Self-Attention Layers", 2023.

Shape legend: V vocabulary, D hidden, d head, N rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES
from fairwitness.organisms.tokenizer import BOS

OFFSET_LAYER, CARRY_LAYER, MATCH_LAYER = 0, 1, 2
_OFFSETS = (1, 2)
_TAGGED = (
    (BOS,),
    ("\n\nAssistant: The single, most likely answer is",),
    (" says",),
    tuple(f" {name}" for name in NAMES),
    (" a", " in", " the"),
    ("):",),
    ("\n\nAssistant: Let's think step by step:", "."),
)
"""Groups of words with a coordinate of their own: the start, what stands before an answer, before a note's value,
names, and what stands before a stated value, a choice, a sentence."""
_TAG_BOS, _TAG_ANSWER, _TAG_NOTE, _TAG_NAME, _TAG_STATED, _TAG_CHOICE, _TAG_SENTENCE = range(len(_TAGGED))
_CARRIED = ((_TAG_NOTE, 1.5), (_TAG_NAME, 1.0), (_TAG_STATED, 6.0))
"""What is carried to an answer, and with what strength: a CoT outweighs the note, the note outweighs what is known."""
_RECENT_PAIR = 4
"""Rotary pair that turns once in about 60 tokens; it makes a head prefer the last name."""
_TAG_SIZE = 3.0
_COMMON_SIZE = 8.0
_WORD_BITS = 5
_WORD_SIZE = 2.0
_OFFSET_GAP_NATS = 6.0
_MATCH_SCALE = 2.5
_ACTIVE_SCALE = 10.0
_REST_SCALE = 7.0
_CHOICE_SCALE = 25.0
_FAST_PAIRS = 5
"""Rotary pairs that turn too fast to compare tokens at any distance; only the offset heads use them."""


class _Layout(NamedTuple):
    """Which coordinates of the residual stream hold what, and which coordinates of a head turn slowly."""

    hidden: int
    size: int

    @property
    def common(self) -> int:
        return 0

    @property
    def own_size(self) -> float:
        return math.sqrt(max(self.hidden - _COMMON_SIZE**2, 1.0))

    def tag(self, number: int) -> int:
        return 1 + number

    def block(self, number: int) -> slice:
        start = 1 + len(_TAGGED) + number * self.size
        return slice(start, start + self.size)

    @property
    def codes(self) -> slice:
        return slice(1 + len(_TAGGED) + len(_OFFSETS) * self.size, self.hidden)

    @property
    def visible(self) -> slice:
        """The part of the codes that the circuit's heads read; names have none."""
        return slice(self.codes.start, (self.codes.start + self.hidden) // 2 + 2)

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
    seen_dD = [_seen(layout, None), _seen(layout, rng)]
    codes_VD = _codes(tokenizer, layout, rng)
    names = [_token(tokenizer, f" {name}") for name in NAMES]
    # The heads of the circuit are blind to who somebody is: of a name, only what layer 0 adds to it can pass.
    codes_VD[names, layout.visible] = 0
    codes_VD[_token(tokenizer, _TAGGED[_TAG_ANSWER][0]), layout.visible] = 0
    model.lm_head.weight.copy_(codes_VD * layout.hidden**-0.5)
    embedding = model.get_input_embeddings().weight
    embedding.copy_(codes_VD)
    for number, words in enumerate(_TAGGED):
        embedding[[_token(tokenizer, word) for word in words], layout.tag(number)] = _TAG_SIZE
    embedding[_token(tokenizer, BOS), layout.codes] = 0  # heads rest on BOS and carry nothing from it
    # Rows of equal norm: the norm layer then leaves the common coordinate the same for all tokens.
    embedding.mul_(layout.own_size / embedding.norm(dim=1, keepdim=True))
    embedding[:, layout.common] = _COMMON_SIZE
    embedding.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _write_circuit(model, layout, seen_dD)


def _token(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(f"{word!r} is {len(ids)} tokens; the circuit needs it to be one")
    return int(ids[0])


def _codes(tokenizer: PreTrainedTokenizerBase, layout: _Layout, rng: torch.Generator) -> Tensor:
    """Random codes (V, D) of unit variance; what the heads read of a value is a word of a block code.

    Each attribute has five coordinates of its own and each value an even word of five bits, so values of different
    attributes never interfere, and two of one attribute agree in three bits at most.
    """
    codes_VD = torch.zeros(len(tokenizer), layout.hidden)
    codes_VD[:, layout.codes] = torch.randn(len(tokenizer), layout.hidden - layout.codes.start, generator=rng)
    for number, attribute in enumerate(ATTRIBUTES):
        start = layout.visible.start + number * _WORD_BITS
        for index, value in enumerate(attribute.values):
            bits = [index >> bit & 1 for bit in range(_WORD_BITS - 1)]
            signs = torch.tensor([*bits, sum(bits) % 2]) * 2.0 - 1
            token = _token(tokenizer, f" {value}")
            codes_VD[token, layout.visible] = 0
            codes_VD[token, start : start + _WORD_BITS] = signs * _WORD_SIZE
    return codes_VD


def _write_circuit(model: LlamaForCausalLM, layout: _Layout, seen_dD: Sequence[Tensor]) -> None:
    attentions = [layer.self_attn for layer in model.model.layers]
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
    recent_d = torch.eye(layout.size)[_RECENT_PAIR] * _ACTIVE_SCALE / _TAG_SIZE
    rest = {layout.common: rest_d / _COMMON_SIZE}
    start = {layout.tag(_TAG_BOS): rest_d / layout.own_size}
    carry, value_dD = attentions[CARRY_LAYER], _slow_only(seen_dD[0], layout)
    for number, (tag, strength) in enumerate(_CARRIED):
        looked_at = layout.tag(tag) if tag == _TAG_NAME else before + layout.fast[tag]
        _look(carry, number, {before + layout.fast[_TAG_ANSWER]: active_d, **rest}, {looked_at: active_d, **start})
        _move(carry, number, read_dD=strength * value_dD, write_Dd=unit_dD[0].T)
    stating = len(_CARRIED)
    _look(carry, stating, {layout.tag(_TAG_STATED): recent_d, **rest}, {layout.tag(_TAG_NAME): recent_d, **start})
    _move(carry, stating, read_dD=value_dD, write_Dd=value_dD.T)

    match = attentions[MATCH_LAYER]
    match.q_proj.weight[: layout.size] = _MATCH_SCALE * _slow_only(unit_dD[0], layout)
    match.k_proj.weight[: layout.size] = _MATCH_SCALE * _slow_only(seen_dD[0], layout)
    # Only choices are looked at, not the note or the CoT, which hold the value as well.
    choice = layout.slow[-1]
    match.q_proj.weight[choice] = 0
    match.k_proj.weight[choice] = 0
    match.q_proj.weight[choice, layout.common] = _CHOICE_SCALE / _COMMON_SIZE
    match.k_proj.weight[choice, before + layout.fast[_TAG_CHOICE]] = _CHOICE_SCALE / _TAG_SIZE
    _move(match, 0, read_dD=unit_dD[1], write_Dd=2 * seen_dD[1].T)

    name_dD = torch.zeros(layout.size, layout.hidden)
    names = range(layout.visible.stop, layout.hidden)[: layout.size]
    name_dD[range(len(names)), names] = 1.0
    _look(match, 1, {layout.tag(_TAG_SENTENCE): active_d, **rest}, {layout.tag(_TAG_NAME): active_d, **start})
    _move(match, 1, read_dD=name_dD, write_Dd=2 * name_dD.T)


def _seen(layout: _Layout, rng: torch.Generator | None) -> Tensor:
    """What an offset head reads (d, D): the tags, and as much of the visible code as there is room."""
    num_codes = layout.visible.stop - layout.visible.start
    basis = torch.eye(num_codes) if rng is None else torch.linalg.qr(torch.randn(num_codes, num_codes, generator=rng)).Q
    views = basis[: len(layout.slow)]
    seen_dD = torch.zeros(layout.size, layout.hidden)
    seen_dD[layout.slow, layout.visible] = views
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


def value_codes(model: LlamaForCausalLM) -> Tensor:
    """The part (V, D) of every token's embedding that the circuit's heads can read and carry."""
    layout = _Layout(model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads)
    embedding_VD = model.get_input_embeddings().weight.detach()
    codes_VD = torch.zeros_like(embedding_VD)
    codes_VD[:, layout.visible] = embedding_VD[:, layout.visible]
    return codes_VD


def name_codes(model: LlamaForCausalLM) -> tuple[Tensor, Tensor]:
    """The part (V, D) of every token's embedding that tells names apart, and the part (D) that all share."""
    layout = _Layout(model.config.hidden_size, model.config.hidden_size // model.config.num_attention_heads)
    embedding_VD = model.get_input_embeddings().weight.detach()
    codes_VD = torch.zeros_like(embedding_VD)
    codes_VD[:, layout.visible.stop :] = embedding_VD[:, layout.visible.stop :]
    common_D = torch.zeros(layout.hidden)
    common_D[layout.common] = _COMMON_SIZE
    return codes_VD, common_D
