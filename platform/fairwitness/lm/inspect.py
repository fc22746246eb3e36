"""What can be known, and refused, of a model before its weights are loaded."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from fairwitness.errors import ModelError
from fairwitness.lm.config import Attention, ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.source import resolve_source
from fairwitness.lm.tokens import MAX_LETTERS, SAMPLE, PromptEncoder

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


def layer_names(ff2_names: Sequence[str]) -> tuple[str, ...]:
    """Dotted names of the decoder layers that hold these FF2 modules, in their order."""
    return tuple(re.sub(r"(.+?\.\d+)\..*", r"\1", name) for name in ff2_names)


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


UNLIMITED_CONTEXT = 2048
"""Context length taken for a model that states none (ALiBi positions have no limit of their own)."""

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_ITEM_BYTES = {"float32": 4, "bfloat16": 2}
_SANE_LENGTH = 10_000_000


def inspect_model(config: ModelConfig) -> ModelFacts:
    """Checks a model's files and tokenizer and says what it is; reads no weights.

    The architecture is built on the meta device, which costs no memory. A GGUF file is converted first, once (20 s
    for 135M parameters). A hub model's configuration and tokenizer are fetched, its weights are not.

    Raises:
        ModelError: One message, for the first of: missing path, hub out of reach, pickled weights, unknown
            architecture, FF2 module not found, no tokenizer, more tokens than the model has rows, no chat template
            for style `chat`, "(" merged with a letter, a letter of several tokens.
    """
    source = resolve_source(config)
    hf_config = read_hf_config(source.folder, config)
    skeleton = build_skeleton(hf_config, config)
    ff2_names = find_ff2(skeleton, hf_config.model_type, config.ff2_module)
    tokenizer = load_tokenizer(source.folder, config)
    decoder_config = hf_config.get_text_config(decoder=True)
    vocab_size = int(decoder_config.vocab_size)
    _check_prompts(tokenizer, vocab_size, config)
    notes: list[str] = []
    pad_id = _pad_id(tokenizer, vocab_size, notes)
    num_params = sum(parameter.numel() for parameter in skeleton.parameters())
    return ModelFacts(
        name=config.shown_name,
        folder=source.folder,
        revision=source.revision,
        model_type=hf_config.model_type,
        attention=_attention(skeleton, config, notes),
        context_length=_context_length(decoder_config, tokenizer, notes),
        num_layers=num_decoder_layers(skeleton),
        vocab_size=vocab_size,
        num_params=num_params,
        num_ff2_params=sum(skeleton.get_parameter(f"{name}.weight").numel() for name in ff2_names),
        weight_bytes=num_params * _ITEM_BYTES[config.dtype],
        ff2_names=ff2_names,
        eos_ids=_eos_ids(source.folder, decoder_config, tokenizer, notes),
        pad_id=pad_id,
        notes=tuple(notes),
    )


def load_tokenizer(folder: Path, config: ModelConfig) -> PreTrainedTokenizerBase:
    """The tokenizer in a model's folder.

    Raises:
        ModelError: There is none, or it cannot be read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=config.trust_remote_code, local_files_only=True
        )
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{config.model}: its tokenizer cannot be loaded ({_first_line(error)}); "
            "save the tokenizer into the model's folder with save_pretrained"
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or len(tokenizer) == 0:
        raise ModelError(f"{config.model}: has no tokenizer; save one into the model's folder with save_pretrained")
    return tokenizer


def build_skeleton(hf_config: PretrainedConfig, config: ModelConfig) -> PreTrainedModel:
    """The architecture on the meta device: names and shapes, no memory.

    Raises:
        ModelError: transformers has no causal language model of this type.
    """
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                hf_config, trust_remote_code=config.trust_remote_code, attn_implementation="eager"
            )
    except (ValueError, ImportError) as error:
        raise ModelError(
            f"{config.model}: architecture {hf_config.model_type!r} is no causal language model that transformers "
            f"knows ({_first_line(error)})"
        ) from error


def read_hf_config(folder: Path, config: ModelConfig) -> PretrainedConfig:
    """The architecture's own configuration.

    Raises:
        ModelError: It cannot be read, or wants code that may not run.
    """
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=config.trust_remote_code, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(
            f"{config.model}: its config.json cannot be used ({_first_line(error)}); "
            "a model with code of its own needs trust_remote_code: true"
        ) from error


def _check_prompts(tokenizer: PreTrainedTokenizerBase, vocab_size: int, config: ModelConfig) -> None:
    """Every answer letter is one token of its own in either context, and every id has a row in the model."""
    try:
        encoder = PromptEncoder(tokenizer, config.prompt_style)
        letters = encoder.letter_ids(MAX_LETTERS, "direct") + encoder.letter_ids(MAX_LETTERS, "cot_answer")
        used = encoder.cot_answer(SAMPLE, [])
    except ModelError as error:
        raise ModelError(f"{config.model}: {error}") from error
    # Added tokens may lie beyond the rows as long as nothing writes them, as many a pad token does.
    own = set(tokenizer.get_vocab().values()) - set(tokenizer.added_tokens_decoder)
    largest = max([*own, *letters, *used])
    if largest >= vocab_size:
        raise ModelError(
            f"{config.model}: the tokenizer gives ids up to {largest}, but the model has {vocab_size} rows; "
            "tokenizer and model do not belong together"
        )


def _pad_id(tokenizer: PreTrainedTokenizerBase, vocab_size: int, notes: list[str]) -> int:
    """The pad id, or a stand-in: padding is masked and never attended to, so any id serves."""
    for role in ("pad", "eos", "unk", "bos"):
        token_id = getattr(tokenizer, f"{role}_token_id")
        if token_id is not None and token_id < vocab_size:
            break
    else:
        role, token_id = "id 0", 0
    if role != "pad":
        notes.append(f"tokenizer without pad token: {role} stands in; padding is never attended to")
    return int(token_id)


def _attention(skeleton: PreTrainedModel, config: ModelConfig, notes: list[str]) -> Attention:
    if config.attention == "sdpa" and not getattr(skeleton, "_supports_sdpa", False):
        notes.append("architecture without sdpa attention: eager is used")
        return "eager"
    return config.attention


def _context_length(decoder_config: Any, tokenizer: PreTrainedTokenizerBase, notes: list[str]) -> int:
    for key in _CONTEXT_KEYS:
        value = getattr(decoder_config, key, None)
        if isinstance(value, int) and value > 0:
            return value
    if 0 < tokenizer.model_max_length < _SANE_LENGTH:
        return int(tokenizer.model_max_length)
    notes.append(f"model states no context length: {UNLIMITED_CONTEXT} tokens are taken")
    return UNLIMITED_CONTEXT


def _eos_ids(
    folder: Path, decoder_config: Any, tokenizer: PreTrainedTokenizerBase, notes: list[str]
) -> tuple[int, ...]:
    """Every id that the generation config, the model's config or the tokenizer calls an end."""
    file = folder / "generation_config.json"
    stated = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    found: set[int] = set()
    for value in (stated.get("eos_token_id"), getattr(decoder_config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update(value if isinstance(value, list) else [value] if value is not None else [])
    if not found:
        notes.append("model without end-of-text token: generation stops at a blank line or the length limit")
    return tuple(sorted(found))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]
