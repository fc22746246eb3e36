"""Writes a tiny Llama as a GGUF file, the way llama.cpp's converter does."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.helpers.tiny_models import save_tiny
from tests.helpers.tiny_tokenizers import SPECIAL, byte_level_tokenizer


def save_tiny_gguf(folder: Path, *, name: str = "tiny.gguf") -> Path:
    """Writes `tiny.gguf` (float32) and beside it the folder `original` with the same model in safetensors."""
    tokenizer = byte_level_tokenizer(chat=False)
    original = save_tiny(folder / "original", "llama", tokenizer=tokenizer)
    model = AutoModelForCausalLM.from_pretrained(original)
    writer = gguf.GGUFWriter(folder / name, "llama")
    _write_shape(writer, model.config)
    _write_tokenizer(writer, tokenizer)
    for key, tensor in model.state_dict().items():
        writer.add_tensor(*_llama_cpp_tensor(key, tensor, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / name


def _write_shape(writer: gguf.GGUFWriter, config) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer) -> None:
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)


_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers.": "blk.",
}


def _llama_cpp_tensor(key: str, tensor: torch.Tensor, config) -> tuple[str, np.ndarray]:
    name = key
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    values = tensor.float().numpy()
    if name.endswith(("attn_q.weight", "attn_k.weight")):
        num_heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
        rotary = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
        values = np.ascontiguousarray(rotary.swapaxes(1, 2).reshape(values.shape))
    return name, values
