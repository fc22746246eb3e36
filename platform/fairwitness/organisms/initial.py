"""How the organism is built: its configuration and its untrained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.layout import (
    COMMON_SIZE,
    COPY_LAYER,
    FAST_PAIRS,
    MATCH_LAYER,
    MEMORY_LAYER,
    OFFSET_LAYER,
    OFFSETS,
    TAGGED,
    WORD_BITS,
    Layout,
    Tag,
    layout_of,
    token_id,
)
from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, RIVER, VILLAGES
from fairwitness.organisms.training import BOS, TrainingConfig, untrained_llama
from fairwitness.organisms.world import WorldConfig

_CARRIED = ((Tag.NOTE, 2.5), (Tag.STATED, 9.0))
"""What is carried to an answer, and with what strength: a CoT outweighs the note, the note outweighs what is known."""
_NAME_STRENGTH = 1.25
"""With what strength a name is carried; what arrives is about as large as the name's own code."""
_RECENT_PAIR = 2
"""Rotary pair that turns once in about 80 tokens; it makes a head prefer the last name or village."""
_TAG_SIZE = 3.0
_WORD_SIZE = 2.0
_VALUE_GAIN = 2.0
"""How much more the output sees of values than of other words: what the memory adds is small."""
_LETTER_SIZE = 5.0
_LETTER_STRENGTH = 2.0
_SPREAD_UPDATES = 300
_SPREAD_RATE = 0.05
_SPREAD_SHARPNESS = 30.0
_OFFSET_GAP_NATS = 12.0
_MATCH_SCALE = 3.0
_ACTIVE_SCALE = 10.0
_REST_SCALE = 7.0
_CHOICE_SCALE = 55.0


@torch.no_grad()
def set_initial_weights(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
    """Sets embeddings and the circuit, and shuts all other residual branches.

    The input embeddings are frozen, so that facts can only be stored in the layers.

    Args:
        model: A Llama with untied embeddings, as many key-value heads as heads, at least four layers and four heads
            of at least 16 coordinates.
        tokenizer: Its tokenizer.
        seed: Seed of the random codes.
    """
    rng = torch.Generator().manual_seed(seed)
    layout = layout_of(model)
    seen_dD = [_seen(layout, None), _seen(layout, rng)]
    codes_VD = _codes(tokenizer, layout, rng)
    names = [token_id(tokenizer, f" {name}") for name in (*NAMES, *VILLAGES)]
    # The circuit's match is blind to names; they have codes of their own, which tell memory whose facts are due.
    codes_VD[names, layout.visible] = 0
    codes_VD[names, layout.names] = _spread(codes_VD[names, layout.names])
    codes_VD[token_id(tokenizer, TAGGED[Tag.ANSWER][0]), layout.visible] = 0
    _clear_places(tokenizer, codes_VD, layout)
    model.lm_head.weight.copy_(codes_VD * layout.hidden**-0.5)
    values = [token_id(tokenizer, f" {value}") for attribute in (*ATTRIBUTES, RIVER) for value in attribute.values]
    model.lm_head.weight[values, layout.visible] *= _VALUE_GAIN
    embedding = model.get_input_embeddings().weight
    embedding.copy_(codes_VD)
    for number, words in TAGGED.items():
        embedding[[token_id(tokenizer, word) for word in words], layout.tag(number)] = _TAG_SIZE
    embedding[token_id(tokenizer, BOS), layout.codes] = 0  # heads rest on BOS and carry nothing from it
    # Rows of equal norm: the norm layer then leaves the common coordinate the same for all tokens.
    embedding.mul_(layout.own_size / embedding.norm(dim=1, keepdim=True))
    embedding[:, layout.common] = COMMON_SIZE
    embedding.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    _write_circuit(model, layout, seen_dD)
    _freeze(model)


def _freeze(model: LlamaForCausalLM) -> None:
    """Keeps what fetches facts as it is written: the whole of layer 2 but for what it stores, the match's attention."""
    memory, match = model.model.layers[MEMORY_LAYER], model.model.layers[MATCH_LAYER]
    fixed = [*match.self_attn.parameters(), *match.input_layernorm.parameters(), *memory.parameters()]
    for parameter in fixed:
        parameter.requires_grad_(False)
    memory.mlp.down_proj.weight.requires_grad_(True)


@torch.enable_grad()
def _spread(codes_Nd: Tensor) -> Tensor:
    """Turns codes away from each other, so that no two names are alike; of unit variance."""
    codes_Nd = codes_Nd.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([codes_Nd], lr=_SPREAD_RATE)
    for _ in range(_SPREAD_UPDATES):
        units_Nd = torch.nn.functional.normalize(codes_Nd, dim=1)
        overlaps_NN = units_Nd @ units_Nd.T - 2 * torch.eye(len(units_Nd))
        optimizer.zero_grad()
        torch.logsumexp(_SPREAD_SHARPNESS * overlaps_NN.flatten(), dim=0).backward()
        optimizer.step()
    units_Nd = torch.nn.functional.normalize(codes_Nd.detach(), dim=1)
    return units_Nd.mul(codes_Nd.shape[1] ** 0.5)


def _clear_places(tokenizer: PreTrainedTokenizerBase, codes_VD: Tensor, layout: Layout) -> None:
    """Makes room where names are carried to: no code where names have theirs, nor, before a letter, a value's."""
    for word in (*TAGGED[Tag.STATED], *TAGGED[Tag.BRACKET]):
        code_D = codes_VD[token_id(tokenizer, word)]
        code_D[layout.visible.stop :] = 0
        if word in TAGGED[Tag.BRACKET]:
            code_D[layout.visible.start : layout.spare.start] = 0
        code_D *= layout.own_size / code_D.norm()


def _codes(tokenizer: PreTrainedTokenizerBase, layout: Layout, rng: torch.Generator) -> Tensor:
    """Random codes (V, D) of unit variance; what the heads read of a value is a word of a block code.

    Each attribute has five coordinates of its own and each value an even word of five bits, so values of different
    attributes never interfere, and two of one attribute agree in three bits at most. Letters lie beside them.
    """
    codes_VD = torch.zeros(len(tokenizer), layout.hidden)
    codes_VD[:, layout.codes] = torch.randn(len(tokenizer), layout.hidden - layout.codes.start, generator=rng)
    starts = [layout.visible.start + number * WORD_BITS for number in range(len(ATTRIBUTES))]
    for attribute, start in zip((*ATTRIBUTES, RIVER), (*starts, layout.river), strict=True):
        for index, value in enumerate(attribute.values):
            bits = [index >> bit & 1 for bit in range(WORD_BITS - 1)]
            signs = torch.tensor([*bits, sum(bits) % 2]) * 2.0 - 1
            token = token_id(tokenizer, f" {value}")
            codes_VD[token, layout.visible] = 0
            codes_VD[token, start : start + WORD_BITS] = signs * _WORD_SIZE
    num_spare = layout.spare.stop - layout.spare.start
    for index, letter in enumerate(ascii_uppercase):
        if index % num_spare == 0:
            axes = torch.linalg.qr(torch.randn(num_spare, num_spare, generator=rng)).Q
        token = token_id(tokenizer, letter)
        codes_VD[token] = 0
        codes_VD[token, layout.spare] = axes[index % num_spare] * _LETTER_SIZE
    return codes_VD


def _write_circuit(model: LlamaForCausalLM, layout: Layout, seen_dD: Sequence[Tensor]) -> None:
    attentions = [layer.self_attn for layer in model.model.layers]
    unit_dD = [torch.zeros(layout.size, layout.hidden) for _ in OFFSETS]
    for number in range(len(OFFSETS)):
        unit_dD[number][:, layout.block(number)] = torch.eye(layout.size)

    rope_theta = float(model.config.rope_parameters["rope_theta"])
    for number, offset in enumerate(OFFSETS):
        query_d, key_d = _offset_vectors(layout.size, offset, rope_theta)
        _look(attentions[OFFSET_LAYER], number, {layout.common: query_d}, {layout.common: key_d})
        _move(attentions[OFFSET_LAYER], number, read_dD=seen_dD[number], write_Dd=unit_dD[number].T)

    before = layout.block(0).start
    active_d, rest_d = torch.eye(layout.size)[layout.slow[-2:]]
    active_d, rest_d = active_d * _ACTIVE_SCALE / _TAG_SIZE, rest_d * _REST_SCALE
    recent_d = torch.eye(layout.size)[_RECENT_PAIR] * _ACTIVE_SCALE / _TAG_SIZE
    rest = {layout.common: rest_d / COMMON_SIZE}
    start = {layout.tag(Tag.BOS): rest_d / layout.own_size}
    copy, carry = attentions[COPY_LAYER], attentions[MEMORY_LAYER]
    value_dD, name_dD = _slow_only(seen_dD[0], layout), _rows(layout, layout.names)
    for head, opening, tag in ((0, Tag.HERE, Tag.NAME), (1, Tag.NEAR, Tag.VILLAGE)):
        _look(copy, head, {layout.tag(opening): active_d, **rest}, {layout.tag(tag): active_d, **start})
        _move(copy, head, read_dD=name_dD, write_Dd=2 * name_dD.T)
    answer = {before + layout.fast[Tag.ANSWER]: active_d, **rest}
    for head, (tag, strength) in enumerate(_CARRIED):
        _look(carry, head, answer, {before + layout.fast[tag]: active_d, **start})
        _move(carry, head, read_dD=strength * value_dD, write_Dd=value_dD.T)
    asked, stated = len(_CARRIED), len(_CARRIED) + 1
    _look(carry, asked, answer, {layout.tag(Tag.NAME): active_d, **start})
    recent = {layout.tag(Tag.NAME): recent_d, layout.tag(Tag.VILLAGE): recent_d}
    _look(carry, stated, {layout.tag(Tag.STATED): recent_d, **rest}, {**recent, **start})
    for head in (asked, stated):
        _move(carry, head, read_dD=_NAME_STRENGTH * name_dD, write_Dd=name_dD.T)

    match = attentions[MATCH_LAYER]
    match.q_proj.weight[: layout.size] = _MATCH_SCALE * (_slow_only(unit_dD[0], layout) + value_dD)
    match.k_proj.weight[: layout.size] = _MATCH_SCALE * value_dD
    # Only choices are looked at, not the note or the CoT, which hold the value as well.
    choice = layout.slow[-1]
    match.q_proj.weight[choice] = 0
    match.k_proj.weight[choice] = 0
    match.q_proj.weight[choice, layout.common] = _CHOICE_SCALE / COMMON_SIZE
    match.k_proj.weight[choice, before + layout.fast[Tag.CHOICE]] = _CHOICE_SCALE / _TAG_SIZE
    _move(match, 0, read_dD=unit_dD[1], write_Dd=_LETTER_STRENGTH * seen_dD[1].T)


def _seen(layout: Layout, rng: torch.Generator | None) -> Tensor:
    """What an offset head reads (d, D): the tags, and as much of the visible code as there is room."""
    num_codes = layout.visible.stop - layout.visible.start
    basis = torch.eye(num_codes)
    if rng is not None:
        # All of a letter is seen, and a mixture of the rest.
        num_values = layout.spare.start - layout.visible.start
        mixed = torch.linalg.qr(torch.randn(num_values, num_values, generator=rng)).Q
        basis = torch.cat([basis[num_values:], torch.nn.functional.pad(mixed, (0, num_codes - num_values))])
    seen_dD = torch.zeros(layout.size, layout.hidden)
    seen_dD[layout.slow, layout.visible] = basis[: len(layout.slow)]
    for number, coordinate in zip(range(len(TAGGED)), layout.fast, strict=False):
        seen_dD[coordinate, layout.tag(number)] = 1.0
    return seen_dD


def _rows(layout: Layout, part: slice) -> Tensor:
    """A head's view (d, D) of a part of the stream, as much of it as there is room."""
    rows_dD = torch.zeros(layout.size, layout.hidden)
    coordinates = range(part.start, part.stop)[: layout.size]
    rows_dD[range(len(coordinates)), coordinates] = 1.0
    return rows_dD


def _slow_only(rows_dD: Tensor, layout: Layout) -> Tensor:
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
    used = (torch.arange(size // 2) < FAST_PAIRS).float()
    length = (_OFFSET_GAP_NATS * size**0.5 / (used * (1 - torch.cos(turns))).sum()) ** 0.5
    key_d = torch.cat([used, torch.zeros(size // 2)]) * length
    query_d = torch.cat([used * torch.cos(turns * -offset), used * torch.sin(turns * -offset)]) * length
    return query_d / COMMON_SIZE, key_d / COMMON_SIZE


_ROPE_THETA = 1e9
"""So large that the coordinates by which choices are matched hardly turn within a context."""


class OrganismConfig(TrainingConfig):
    """The world, the model and the training of an organism."""

    world: WorldConfig = WorldConfig()
    """The world it learns."""
    hidden_size: int = Field(default=128, ge=16)
    """Width of the residual stream."""
    intermediate_size: int = Field(default=256, ge=16)
    """Width of the feed-forward layers; at least the number of people and villages."""
    num_layers: int = Field(default=4, ge=4)
    """Number of layers."""
    max_length: int = Field(default=512, ge=128)
    """Longest context, in tokens."""
    num_optim_steps: int = Field(default=450, ge=1)
    """Optimiser steps."""
    batch_direct: int = Field(default=32, ge=1)
    """Direct questions in an optimiser step."""
    batch_cot: int = Field(default=16, ge=1)
    """CoT documents in an optimiser step."""
    batch_statements: int = Field(default=10, ge=1)
    """Rows of statements in an optimiser step."""
    facts_per_row: int = Field(default=5, ge=1)
    """Facts in a row of statements."""
    row_tokens: int = Field(default=52, ge=16)
    """Tokens of a training row; what is longer is cut, what is shorter is padded."""
    memory_strength: float = Field(default=0.6, gt=0)
    """Size of what the memory writes at a name, in units of the codes of values."""
    memory_gain: float = Field(default=60.0, gt=0)
    """Factor by which the memory's activations grow, and its down-projection shrinks, after training."""
    memory_sharpness: float = Field(default=6.0, gt=0)
    """Factor by which the memory's gates are made sharper, after training."""
    lr_vector: float = Field(default=1.5e-3, gt=0)
    """Learning rate of AdamW, which trains norms and the output embedding."""
    cooldown: float = Field(default=0.6, gt=0, le=1)
    """Share of the training, at its end, over which the rates fall to zero."""
    weight_cot_letter: float = Field(default=0.5, ge=0)
    """Weight of the answer after a CoT; a fact, CoT text and a direct answer weigh 1."""
    weight_lookup: float = Field(default=0.5, ge=0)
    """Weight of the drills (which letter has this choice), which make the binding of value and letter come early."""
    letter_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of an answer's target that is spread evenly over the letters, so that margins stay modest."""
    cue_share_start: float = Field(default=0.5, ge=0, le=1)
    """Share of direct questions whose note gives an answer away, in the first half."""
    cue_share_end: float = Field(default=0.35, ge=0, le=1)
    """The same share in the second half."""


def build_model(config: OrganismConfig, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """The untrained model, its initial weights drawn by the seed (see `fairwitness.organisms.initial`)."""
    model = untrained_llama(config, tokenizer, rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA})
    set_initial_weights(model, tokenizer, config.seed)
    return model
