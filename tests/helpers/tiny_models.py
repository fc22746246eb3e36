"""Tiny random models saved as folders, the way a user's model lies on disk."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from tests.helpers.tiny_configs import tiny_config
from tests.helpers.tiny_tokenizers import byte_level_tokenizer

TINY_TYPES = ("llama", "gpt2", "gpt_neox", "opt", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3")


def save_tiny(
    folder: Path,
    model_type: str = "llama",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Writes a random two-layer model and its tokenizer to a folder and returns the folder.

    The weights are drawn wider than usual: with the default spread a random model repeats one token for ever.

    Args:
        folder: Made if it is missing.
        model_type: Architecture.
        tokenizer: By default a byte-level one with pad token and chat template, without BOS.
        seed: Seed of the weights.
        dtype: Numeric type of the stored weights.
    """
    tokenizer = tokenizer or byte_level_tokenizer()
    config = tiny_config(
        model_type,
        len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(std=0.3)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
