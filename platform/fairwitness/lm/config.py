"""Which language model, in which numeric type, on which device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.config import Config
from fairwitness.text.prompts import PromptStyle

DType = Literal["float32", "bfloat16"]
Device = Literal["cpu", "cuda"]
Attention = Literal["sdpa", "eager"]


class ModelConfig(Config):
    """One model of a run."""

    model: str = Field(min_length=1)
    """Folder with safetensors weights, GGUF file, hub id, or the alias `smollm2` (extra `fairwitness[smollm]`)."""

    name: str | None = None
    """Name shown in tables and the report; by default the last part of `model`."""

    revision: str | None = None
    """Branch, tag or commit of a hub model; meaningless for a path."""

    gguf_file: str | None = None
    """Name of the GGUF file inside the folder or hub repository that `model` names."""

    dtype: DType = "float32"
    """Numeric type of the model's computation; the FF2 master copy and optimiser state are float32 either way."""

    device: Device = "cpu"
    """Device of the model. In an actor it is the one that Ray assigned."""

    ff2_module: str | None = None
    """Dotted name of the FF2 (down-projection) module within a decoder layer, for an architecture that is not in the
    table of `lm/inspect.py`."""

    prompt_style: PromptStyle = "plain"
    """`plain` (Human:/Assistant:) or `chat` (the tokenizer's chat template)."""

    trust_remote_code: bool = False
    """Runs Python code that the model's repository brings along. Leave off unless you have read it."""

    attention: Attention = "sdpa"
    """Attention implementation. An architecture without `sdpa` (Gemma 2) gets `eager`, and the model's facts say so."""

    @property
    def shown_name(self) -> str:
        """`name`, or the last part of `model`."""
        return self.name or self.model.rstrip("/").rsplit("/", 1)[-1]


class EngineConfig(Config):
    """How the engine uses its device; changes no result beyond rounding."""

    group_size: int | None = Field(None, ge=1, le=1024)
    """How many tasks are unlearned at once (K). By default from free memory."""
    max_group_size: int = Field(32, ge=1, le=1024)
    """Upper bound of K when it is chosen from free memory."""
    max_tokens: int = Field(4096, ge=1)
    """Padded tokens per forward pass."""
    memory_share: float = Field(0.6, gt=0, le=1)
    """Share of the free memory that groups may use."""


class SamplingConfig(Config):
    """Sampling of tokens; temperature 0 is greedy."""

    temperature: float = Field(0.0, ge=0, le=10)
    """0: the most probable token. Above: logits are divided by it."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Only the most probable tokens are drawn from whose probabilities reach this sum."""
    top_k: int = Field(0, ge=0)
    """Only that many of the most probable tokens are drawn from; 0 for all."""
