"""How the organism is built: its configuration and its untrained model."""

from __future__ import annotations

from pydantic import Field
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.organisms.initial import set_initial_weights
from fairwitness.organisms.training import TrainingConfig, untrained_llama
from fairwitness.organisms.world import WorldConfig

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
