"""Writes every person's facts into one place: the feed-forward part of layer 0, at the person's name.

It is a key-value memory: each person has a neuron that answers to the name, and the down-projection holds what is
known. The down-projection is the least-squares solution of: at a name, the layer adds the codes of all the person's
values; at any other token, nothing. Statements, chains of thought and direct answers then all have to read the same
memory, and the told differ from the asked in nothing but the questions that follow in training.

Shape legend: N positions, F feed-forward width, D hidden, V vocabulary, B rows, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.initial import name_codes, value_codes
from fairwitness.organisms.world import World

_RIDGE = 1e-3
_MEMORY_LAYER = 0
_GATE_SCALE = 20.0
_GATE_THRESHOLD = 0.7


@torch.no_grad()
def write_facts(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World, ids_BT: Tensor, strength: float
) -> float:
    """Fits the down-projection of layer 0 to the facts.

    Args:
        model: A model with its initial weights.
        tokenizer: Its tokenizer.
        world: Whose facts to write.
        ids_BT: Rows in which every name occurs in many contexts, padded with the pad token.
        strength: Size of what is written, in units of the codes.

    Returns:
        The share of the targets' variance at names that the fit explains, at most 1.

    Raises:
        ValueError: There are more people than neurons.
    """
    _set_keys(model, tokenizer, world)
    down = model.model.layers[_MEMORY_LAYER].mlp.down_proj
    seen: list[Tensor] = []
    handle = down.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    try:
        model.model(ids_BT)
    finally:
        handle.remove()
    memory_VD = _targets(model, tokenizer, world) * strength
    is_text_BT = ids_BT != tokenizer.pad_token_id
    features_NF = seen[0][is_text_BT].double()
    targets_ND = memory_VD[ids_BT[is_text_BT]].double()
    gram_FF = features_NF.T @ features_NF
    gram_FF += _RIDGE * gram_FF.diagonal().mean() * torch.eye(len(gram_FF), dtype=gram_FF.dtype)
    weights_FD = torch.linalg.solve(gram_FF, features_NF.T @ targets_ND)
    down.weight.copy_(weights_FD.T)
    at_name_N = targets_ND.abs().sum(dim=1) > 0
    residual_ND = (features_NF @ weights_FD - targets_ND)[at_name_N]
    return float(1 - residual_ND.square().sum() / targets_ND[at_name_N].square().sum())


@torch.no_grad()
def rescale_memory(model: LlamaForCausalLM, num_people: int, gain: float, sharpness: float) -> None:
    """Makes the memory's activations `gain` times larger and its down-projection as much smaller.

    The model computes the same, up to the tails of the gates. But one learning rate serves all down-projections in
    unlearning, and what a rate can change in an output grows with the activations: with a gain, it is the memory that
    yields first. Gates are made sharper by the way: where a name is absent its neuron is then so silent that Adam,
    blind to the size of a gradient, does not overwrite what it stores.

    Args:
        model: A model with facts written.
        num_people: Number of memory neurons.
        gain: Positive factor.
        sharpness: Factor of the gates; part of the gain.
    """
    mlp = model.model.layers[_MEMORY_LAYER].mlp
    mlp.gate_proj.weight[:num_people] *= sharpness
    mlp.up_proj.weight[:num_people] *= gain / sharpness
    mlp.down_proj.weight[:, :num_people] /= gain


def _set_keys(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World) -> None:
    """One neuron for each person: its gate opens at the name, its up-projection is the same everywhere."""
    mlp = model.model.layers[_MEMORY_LAYER].mlp
    codes_VD, common_D = name_codes(model)
    if len(world.people) > len(mlp.gate_proj.weight):
        raise ValueError(f"{len(world.people)} people need as many neurons; raise intermediate_size")
    always_D = common_D / common_D.dot(common_D)
    for neuron, person in enumerate(world.people):
        (name_id,) = tokenizer.encode(f" {person.name}", add_special_tokens=False)
        code_D = codes_VD[name_id]
        mlp.gate_proj.weight[neuron] = _GATE_SCALE * (code_D / code_D.dot(code_D) - _GATE_THRESHOLD * always_D)
        mlp.up_proj.weight[neuron] = always_D


def _targets(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World) -> Tensor:
    """For every token (V, D): the sum of the codes of a person's values if it is a name, else zero."""
    codes_VD = value_codes(model)
    memory_VD = torch.zeros_like(codes_VD)
    for person in world.people:
        (name_id,) = tokenizer.encode(f" {person.name}", add_special_tokens=False)
        for value in person.facts.values():
            (value_id,) = tokenizer.encode(f" {value}", add_special_tokens=False)
            memory_VD[name_id] += codes_VD[value_id]
    return memory_VD
