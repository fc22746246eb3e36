"""What a decoder does after its last layer: the final norm and the output embedding, for hidden states of any layer.

Shapes: D hidden, V vocabulary; any number of places before them.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fairwitness.errors import ModelError
from fairwitness.lm.inspect import FF2_MODULES, layer_names
from fairwitness.lm.model import LanguageModel

FINAL_NORMS = ("final_layer_norm", "final_layernorm", "layer_norm", "ln_f", "norm", "norm_f")
"""Names of the final norm, which stands beside the stack of decoder layers."""


def final_norm(lm: LanguageModel, hidden: Tensor) -> Tensor:
    """The final norm of states (…, D), on the model's device and in its type; a gradient runs through.

    Raises:
        ModelError: It is not one module beside the decoder layers (a model may have none).
    """
    stack = layer_names(lm.ff2_names)[0].rpartition(".")[0]
    beside = lm.model.get_submodule(stack.rpartition(".")[0])
    norms = [module for name, module in beside.named_children() if name in FINAL_NORMS]
    if len(norms) != 1:
        raise ModelError(f"{lm.facts.name}: {len(norms)} modules beside {stack!r} may be the final norm; one is needed")
    normed: Tensor = norms[0](hidden.to(lm.device, lm.model.dtype))
    return normed


def unembed(lm: LanguageModel, normed: Tensor) -> Tensor:
    """Float32 logits (…, V) of states (…, D) that have been through the final norm; a gradient runs through.

    With what the architecture does to its logits (soft-capping in Gemma, scaling in Cohere and Granite), so that
    `unembed(lm, final_norm(lm, states))` of the last layer are the model's own logits.

    Raises:
        ModelError: The architecture is not in the table `FF2_MODULES`, so nobody has checked what it does to its
            logits; or its output embedding takes another width than D (a projection stands between).
    """
    model_type, config = lm.facts.model_type, lm.model.config
    if model_type not in FF2_MODULES:
        raise ModelError(f"architecture {model_type!r}: what it does to its logits is not known; lenses cannot be used")
    head: Any = lm.model.get_output_embeddings()
    if head.weight.shape[1] != normed.shape[-1]:
        raise ModelError(
            f"{lm.facts.name}: its output embedding takes states of width {head.weight.shape[1]}, not "
            f"{normed.shape[-1]}; lenses cannot be used"
        )
    logits: Tensor = head(normed.to(lm.device, lm.model.dtype))
    if model_type in ("cohere", "cohere2"):
        logits = logits * config.logit_scale
    elif model_type == "granite":
        logits = logits / config.logits_scaling
    elif model_type in ("gemma2", "gemma3_text") and config.final_logit_softcapping is not None:
        logits = (logits / config.final_logit_softcapping).tanh() * config.final_logit_softcapping
    return logits.float()
