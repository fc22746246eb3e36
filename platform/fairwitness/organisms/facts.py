"""Writes every fact into one place: the feed-forward part of layer 2, keyed by the name of a person or village.

It is a key-value memory: each person and each village has a neuron, and the down-projection holds what is known. A
neuron opens where its name has been carried to and a value or an answer is due, and nowhere else, not even at the name.
The down-projection is the least-squares solution of: there, the layer adds the codes of all values of the name and
takes the name away, so that no later layer can learn facts by it; at any other token, it adds nothing. Statements,
chains of thought and direct answers then all have to read the same memory, and the told differ from the asked in
nothing but the questions that follow in training.

Shape legend: N positions, F feed-forward width, D hidden, V vocabulary, B rows, T tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.layout import (
    MEMORY_LAYER,
    common_key,
    layout_of,
    memory_keys,
    place_key,
    remembered_names,
    value_codes,
)
from fairwitness.organisms.world import World

_RIDGE = 1e-3
_GATE_SCALE = 20.0
_GATE_THRESHOLD = 1.7


@torch.no_grad()
def write_facts(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World, ids_BT: Tensor, strength: float
) -> float:
    """Fits the down-projection of layer 2 to the facts.

    Args:
        model: A model with its initial weights.
        tokenizer: Its tokenizer.
        world: Whose facts to write.
        ids_BT: Rows in which every name occurs in many contexts, padded with the pad token.
        strength: Size of what is written, in units of the codes.

    Returns:
        The share of the targets' variance where memory is due that the fit explains, at most 1.

    Raises:
        ValueError: There are more people and villages than neurons.
    """
    _set_keys(model, tokenizer, world)
    layer = model.model.layers[MEMORY_LAYER]
    down = layer.mlp.down_proj
    seen: list[Tensor] = []
    handles = [
        module.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
        for module in (layer.post_attention_layernorm, down)
    ]
    try:
        model.model(ids_BT)
    finally:
        for handle in handles:
            handle.remove()
    stream_BTD, features_BTF = seen
    is_text_BT = ids_BT != tokenizer.pad_token_id
    features_NF = features_BTF[is_text_BT].double()
    targets_BTD = _targets(model, tokenizer, world, ids_BT) * strength
    is_due_BT1 = (targets_BTD != 0).any(dim=-1, keepdim=True)
    names = layout_of(model).names
    targets_BTD[..., names] = -stream_BTD[..., names] * is_due_BT1
    targets_ND = targets_BTD[is_text_BT].double()
    gram_FF = features_NF.T @ features_NF
    gram_FF += _RIDGE * gram_FF.diagonal().mean() * torch.eye(len(gram_FF), dtype=gram_FF.dtype)
    weights_FD = torch.linalg.solve(gram_FF, features_NF.T @ targets_ND)
    down.weight.copy_(weights_FD.T)
    due_N = targets_ND.abs().sum(dim=1) > 0
    residual_ND = (features_NF @ weights_FD - targets_ND)[due_N]
    return float(1 - residual_ND.square().sum() / targets_ND[due_N].square().sum())


@torch.no_grad()
def rescale_memory(model: LlamaForCausalLM, num_neurons: int, gain: float, sharpness: float) -> None:
    """Makes the memory's activations `gain` times larger and its down-projection as much smaller.

    The model computes the same, up to the tails of the gates. But one learning rate serves all down-projections in
    unlearning, and what a rate can change in an output grows with the activations: with a gain, it is the memory that
    yields first. Gates are made sharper by the way: where a name is absent its neuron is then so silent that Adam,
    blind to the size of a gradient, does not overwrite what it stores.

    Args:
        model: A model with facts written.
        num_neurons: Number of memory neurons.
        gain: Positive factor.
        sharpness: Factor of the gates; part of the gain.
    """
    mlp = model.model.layers[MEMORY_LAYER].mlp
    mlp.gate_proj.weight[:num_neurons] *= sharpness
    mlp.up_proj.weight[:num_neurons] *= gain / sharpness
    mlp.down_proj.weight[:, :num_neurons] /= gain


def _set_keys(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World) -> None:
    """One neuron for each person and village: its gate opens at the name, its up-projection is the same everywhere."""
    mlp = model.model.layers[MEMORY_LAYER].mlp
    num_names = len(world.known)
    if num_names > len(mlp.gate_proj.weight):
        raise ValueError(f"{num_names} people and villages need as many neurons; raise intermediate_size")
    always_D = common_key(model)
    open_D = place_key(model, tokenizer) - _GATE_THRESHOLD * always_D
    mlp.gate_proj.weight[:num_names] = _GATE_SCALE * (memory_keys(model, tokenizer, list(world.known)) + open_D)
    mlp.up_proj.weight[:num_names] = always_D


def _targets(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, world: World, ids_BT: Tensor) -> Tensor:
    """For every token of the rows (B, T, D): the sum of the codes of a name's values where they are due, else zero."""
    codes_VD = value_codes(model)
    memory_VD = torch.zeros_like(codes_VD)
    for name, values in world.known.items():
        (name_id,) = tokenizer.encode(f" {name}", add_special_tokens=False)
        for value in values:
            (value_id,) = tokenizer.encode(f" {value}", add_special_tokens=False)
            memory_VD[name_id] += codes_VD[value_id]
    nobody = int(tokenizer.pad_token_id)
    due = [[nobody if name is None else name for name in remembered_names(tokenizer, row)] for row in ids_BT.tolist()]
    memory_VD[nobody] = 0
    return memory_VD[torch.tensor(due)]
