"""Configurations of tiny random decoders: two layers, hidden size 32, 256 positions, one per architecture."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PretrainedConfig

HIDDEN = 32
NUM_LAYERS = 2
NUM_HEADS = 4
CONTEXT = 512

_COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "head_dim": 8,
}
_GPT2 = {"n_embd": HIDDEN, "n_layer": NUM_LAYERS, "n_head": NUM_HEADS, "n_positions": CONTEXT, "n_inner": 48}
_SPECIAL: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": {**_GPT2, "rotary_dim": 4},
    "codegen": {**_GPT2, "rotary_dim": 4},
    "bloom": {"hidden_size": HIDDEN, "n_layer": NUM_LAYERS, "n_head": NUM_HEADS},
    "mpt": {
        "d_model": HIDDEN,
        "n_layers": NUM_LAYERS,
        "n_heads": NUM_HEADS,
        "expansion_ratio": 4,
        "max_seq_len": CONTEXT,
    },
    "falcon": {
        "hidden_size": HIDDEN,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "max_position_embeddings": CONTEXT,
    },
    "opt": {
        "hidden_size": HIDDEN,
        "word_embed_proj_dim": HIDDEN,
        "ffn_dim": 48,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "max_position_embeddings": CONTEXT,
    },
    "xglm": {
        "d_model": HIDDEN,
        "ffn_dim": 48,
        "num_layers": NUM_LAYERS,
        "attention_heads": NUM_HEADS,
        "max_position_embeddings": CONTEXT,
    },
    "gpt_neo": {
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_layers": NUM_LAYERS,
        "num_heads": NUM_HEADS,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 16,
        "max_position_embeddings": CONTEXT,
    },
    "phi3": {**_COMMON, "original_max_position_embeddings": CONTEXT},
    "gemma2": {**_COMMON, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "gemma3_text": {**_COMMON, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "gemma3": {
        "text_config": {**_COMMON, "sliding_window": 16, "query_pre_attn_scalar": 8},
        "vision_config": {**_COMMON, "image_size": 16, "patch_size": 8},
    },
    "mistral": {**_COMMON, "sliding_window": 64},
}


def tiny_config(model_type: str, vocab_size: int, **special_ids: int | None) -> PretrainedConfig:
    """A configuration of this architecture with `vocab_size` rows and special ids (`eos_token_id=` …) as given."""
    values = dict(_SPECIAL.get(model_type, _COMMON))
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **special_ids}
    if "text_config" in values:
        values["text_config"] = {**values["text_config"], "vocab_size": vocab_size, **ids}
        return AutoConfig.for_model(model_type, **values)
    return AutoConfig.for_model(model_type, vocab_size=vocab_size, **values, **ids)
