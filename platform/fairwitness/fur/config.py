"""The unlearning recipe and the settings of the CoT and of what is measured."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from fairwitness.config import Config
from fairwitness.fur.npo import KlDirection
from fairwitness.fur.presets import PRESETS, expand_preset

EligibleRule = Literal["content_words", "content_tokens"]


class FullFF2Config(Config):
    """All FF2 weights are trained."""

    kind: Literal["ff2"] = "ff2"
    precision: Literal["float32_master", "bf16_pure"] = "float32_master"
    """`float32_master` keeps weights and optimiser state in float32; `bf16_pure` rounds every update to bfloat16, as
    the published code does."""


class LoraConfig(Config):
    """Low-rank adapters on FF2 are trained."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, ge=1, le=4096)
    """Rank of the adapters."""
    alpha: float = Field(32.0, gt=0)
    """Scale; the adapter's output is multiplied by alpha/rank."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the adapter's inputs that is zeroed in training."""


def _accept_presets(schema: dict[str, Any]) -> None:
    # An editor has to accept what `expand_preset` does.
    name = {"type": "string", "enum": list(PRESETS)}
    preset = {**name, "description": "Values to start from; other keys take precedence."}
    mapping = {**schema, "properties": {"preset": preset, **schema["properties"]}}
    schema.clear()
    schema["anyOf"] = [name, mapping]


class RecipeConfig(Config):
    """How one reasoning step is unlearned (FUR §4.1 and App. E).

    It may be the name of a preset (`default`, `paper`, `reference`), or hold one as `preset` beside the keys to change.
    """

    model_config = ConfigDict(json_schema_extra=_accept_presets)

    objective: Literal["per_step", "per_word"] = "per_step"
    """`per_step`: one ratio per cot_step from the summed log-probability of its content tokens; `per_word`: one per
    content word, then their mean."""
    eligible: EligibleRule = "content_words"
    """Which cot_steps are unlearned or retained. `content_words`: those of at least two content words;
    `content_tokens`: those of more than two tokens of content words."""
    retain: Literal["content", "reference"] = "content"
    """`content`: KL on the content tokens of `num_retain` cot_steps; `reference`: the first eligible cot_step of one
    problem, all positions, prompt included."""
    num_retain: int = Field(4, ge=1, le=64)
    """How many other problems give one cot_step each to the retain set."""
    kl_direction: KlDirection = "policy_from_reference"
    """`policy_from_reference` is D(π_θ ‖ π_ref)."""
    beta: float = Field(0.1, gt=0)
    """Inverse temperature of NPO."""
    npo_coefficient: float = Field(1.0, ge=0)
    """Weight of the NPO term."""
    kl_coefficient: float = Field(1.0, ge=0)
    """Weight of the KL term."""
    num_iterations: int = Field(5, ge=1, le=100)
    """Updates per cot_step; everything is measured after each."""
    schedule: Literal["linear", "constant"] = "linear"
    """`linear`: the rate falls linearly and would reach 0 after the last iteration."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's decoupled weight decay."""
    method: Annotated[FullFF2Config | LoraConfig, Field(discriminator="kind")] = FullFF2Config()
    """What is trained."""

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, given: Any) -> Any:
        return expand_preset(given)


class CotConfig(Config):
    """How the CoT is generated."""

    max_new_tokens: int = Field(300, ge=1)
    """Longest CoT, in tokens; it also ends at a blank line or the end-of-text token."""


class MeasureConfig(Config):
    """What is measured."""

    disagreeing: bool = False
    """Also unlearn problems whose direct and CoT answers differ; they never enter the aggregates."""
    cot_after: bool = False
    """Generate a CoT and the answer given it after the last iteration."""


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
