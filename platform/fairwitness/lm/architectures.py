"""Where the FF2 (down-projection) of a decoder layer is, by architecture."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from torch import nn
from transformers import PreTrainedModel

from fairwitness.errors import ModelError

FF2_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "apertus": "mlp.down_proj",
        "arcee": "mlp.down_proj",
        "biogpt": "fc2",
        "bloom": "mlp.dense_4h_to_h",
        "codegen": "mlp.fc_out",
        "cohere": "mlp.down_proj",
        "cohere2": "mlp.down_proj",
        "exaone4": "mlp.down_proj",
        "falcon": "mlp.dense_4h_to_h",
        "gemma": "mlp.down_proj",
        "gemma2": "mlp.down_proj",
        "gemma3": "mlp.down_proj",
        "gemma3_text": "mlp.down_proj",
        "glm": "mlp.down_proj",
        "glm4": "mlp.down_proj",
        "gpt2": "mlp.c_proj",
        "gpt_bigcode": "mlp.c_proj",
        "gpt_neo": "mlp.c_proj",
        "gpt_neox": "mlp.dense_4h_to_h",
        "gptj": "mlp.fc_out",
        "granite": "mlp.down_proj",
        "helium": "mlp.down_proj",
        "llama": "mlp.down_proj",
        "ministral": "mlp.down_proj",
        "mistral": "mlp.down_proj",
        "mpt": "ffn.down_proj",
        "nemotron": "mlp.down_proj",
        "olmo": "mlp.down_proj",
        "olmo2": "mlp.down_proj",
        "olmo3": "mlp.down_proj",
        "opt": "fc2",
        "persimmon": "mlp.dense_4h_to_h",
        "phi": "mlp.fc2",
        "phi3": "mlp.down_proj",
        "qwen2": "mlp.down_proj",
        "qwen3": "mlp.down_proj",
        "seed_oss": "mlp.down_proj",
        "smollm3": "mlp.down_proj",
        "stablelm": "mlp.down_proj",
        "starcoder2": "mlp.c_proj",
        "xglm": "fc2",
    }
)
"""`model_type` of a Hugging Face config → name of the FF2 module within a decoder layer. GPT-2 keeps it as a `Conv1D`
(weight: inputs by outputs), every other one as a `Linear` (outputs by inputs)."""


def find_ff2(model: PreTrainedModel, model_type: str, override: str | None) -> tuple[str, ...]:
    """Dotted names of the FF2 modules, one per decoder layer, in the order of the layers.

    Works on a model on the meta device too.

    Args:
        model: The decoder.
        model_type: `config.model_type` of the model.
        override: The module's name within a layer as the user gave it, or None to take it from `FF2_MODULES`.

    Raises:
        ModelError: The architecture is not in the table and there is no override; or the named module is not in
            every layer, or has no weight matrix.
    """
    suffix = override or FF2_MODULES.get(model_type)
    if suffix is None:
        raise ModelError(
            f"architecture {model_type!r} is not in the table of FF2 modules; "
            f"name its down-projection in the config as ff2_module. {_candidates(model, 'mlp.down_proj')}"
        )
    num_layers = num_decoder_layers(model)
    names = _layers_with(model, suffix, num_layers)
    if len(names) != num_layers:
        raise ModelError(
            f"FF2 module {suffix!r} is in {len(names)} of {num_layers} decoder layers of this {model_type!r} model; "
            f"name one that every layer has in the config as ff2_module. {_candidates(model, suffix)}"
        )
    for name in names:
        weight = getattr(model.get_submodule(name), "weight", None)
        if weight is None or weight.ndim != 2:
            raise ModelError(f"FF2 module {name!r} has no weight matrix. {_candidates(model, suffix)}")
    return names


def num_decoder_layers(model: PreTrainedModel) -> int:
    """Number of decoder layers according to the model's config."""
    return int(model.config.get_text_config(decoder=True).num_hidden_layers)


def _layers_with(model: nn.Module, suffix: str, num_layers: int) -> tuple[str, ...]:
    """Modules `<stack>.<number>.<suffix>` of the stack with most of them, vision and audio towers aside."""
    pattern = re.compile(rf"(.+)\.(\d+)\.{re.escape(suffix)}")
    stacks: dict[str, dict[int, str]] = defaultdict(dict)
    for name, _ in model.named_modules():
        match = pattern.fullmatch(name)
        if match and not re.search(r"vision|audio", match[1]):
            stacks[match[1]][int(match[2])] = name
    best = max(stacks.values(), key=len, default={})
    return tuple(best[index] for index in sorted(best))[: num_layers + 1]


def _candidates(model: nn.Module, wanted: str) -> str:
    names = sorted(_matrix_names(model))
    near = difflib.get_close_matches(wanted, names, n=4, cutoff=0.3) or names[:8]
    return f"Nearest names in its layers: {', '.join(near)}" if near else "Its layers hold no weight matrix"


def _matrix_names(model: nn.Module) -> set[str]:
    found = set()
    for name, module in model.named_modules():
        match = re.fullmatch(r".+?\.\d+\.(.+)", name)
        weight = getattr(module, "weight", None)
        if match and weight is not None and weight.ndim == 2:
            found.add(match[1])
    return found
