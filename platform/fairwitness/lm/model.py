"""A language model that is loaded once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from fairwitness.errors import ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.source import ModelSource, fetch_weights, no_progress_bars


def checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and raw bytes of tensors; any numeric type, any device, any order.

    Two sets of tensors have the same checksum exactly if they are equal bit for bit: -0.0 and 0.0 differ, equal NaNs
    do not. No tensors give the checksum of nothing.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A decoder with its tokenizer, ready to measure: evaluation mode, no parameter requires a gradient.

    Attributes:
        model: The Hugging Face decoder, on one device.
        tokenizer: Its tokenizer. Use it through `fairwitness.lm.tokens`, which keeps special tokens explicit.
        facts: What was found before loading.
        ff2_names: Dotted names of the FF2 modules, one per decoder layer.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    config: ModelConfig
    facts: ModelFacts
    device: torch.device
    ff2_names: tuple[str, ...]

    def ff2_modules(self) -> tuple[nn.Module, ...]:
        """The FF2 modules in the order of the layers (`Linear`, or `Conv1D` with a transposed weight)."""
        return tuple(self.model.get_submodule(name) for name in self.ff2_names)

    def ff2_weights(self) -> dict[str, nn.Parameter]:
        """FF2 weight matrices by dotted parameter name, in the order of the layers. Biases are not part of FF2."""
        return {f"{name}.weight": self.model.get_parameter(f"{name}.weight") for name in self.ff2_names}


def load(config: ModelConfig) -> LanguageModel:
    """Loads a model onto one device.

    Raises:
        ModelError: The model cannot be used as it is (see `inspect_model`), its weights do not fill the
            architecture, or there is no CUDA device.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"{config.model}: device cuda was asked for, but this process sees none; set device: cpu")
    facts = inspect_model(config)
    model = _load_weights(config, facts)
    model.eval().requires_grad_(False)
    # generate() of our own never reads it; whoever calls the model's own generate() gets plain greedy decoding.
    model.generation_config = GenerationConfig(eos_token_id=list(facts.eos_ids) or None, pad_token_id=facts.pad_id)
    device = torch.device(config.device)
    return LanguageModel(
        model=model.to(device),
        tokenizer=load_tokenizer(facts.folder, config),
        config=config,
        facts=facts,
        device=device,
        ff2_names=facts.ff2_names,
    )


def _load_weights(config: ModelConfig, facts: ModelFacts) -> PreTrainedModel:
    folder = fetch_weights(config, ModelSource(facts.folder, facts.revision))
    try:
        with no_progress_bars():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=DTYPES[config.dtype],
                use_safetensors=True,
                attn_implementation=facts.attention,
                trust_remote_code=config.trust_remote_code,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        message = " ".join(str(error).split())[:400]
        raise ModelError(f"{config.model}: the weights cannot be loaded ({message})") from error
    absent = sorted(report["missing_keys"])
    if absent:
        raise ModelError(
            f"{config.model}: the weights lack {len(absent)} tensors, {', '.join(absent[:3])} …; "
            "they would be random. Give a complete causal language model"
        )
    return model
