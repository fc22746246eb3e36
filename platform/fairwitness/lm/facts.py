"""What is known of a model before its weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairwitness.lm.config import Attention


@dataclass(frozen=True)
class ModelFacts:
    """Facts of one model, found from its files without reading the weights.

    Attributes:
        name: Name shown in tables.
        folder: Local folder with configuration and tokenizer (and, for a local model, safetensors weights).
        revision: `sha256-…` over the files of a local model, or the commit of a hub model.
        model_type: Architecture, as Hugging Face names it.
        attention: Attention implementation that is used: the one asked for, or `eager` where there is no `sdpa`.
        context_length: Most tokens that prompt and completion may have together.
        vocab_size: Number of rows of the output layer.
        num_params: Number of parameters, tied ones once.
        num_ff2_params: Number of parameters in the FF2 weight matrices.
        weight_bytes: Memory of the parameters in the numeric type of the configuration.
        ff2_names: Dotted names of the FF2 modules, one per decoder layer.
        eos_ids: Ids that end a generation, sorted; empty when the model has none.
        pad_id: Id that fills the left of a padded row. It is never attended to.
        notes: What a reader of the results should know, such as a missing pad token.
    """

    name: str
    folder: Path
    revision: str
    model_type: str
    attention: Attention
    context_length: int
    num_layers: int
    vocab_size: int
    num_params: int
    num_ff2_params: int
    weight_bytes: int
    ff2_names: tuple[str, ...]
    eos_ids: tuple[int, ...]
    pad_id: int
    notes: tuple[str, ...] = ()
