"""Ways of changing weights in one run: each with learning rates of its own, all on the same CoTs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fairwitness.config import Config
from fairwitness.fur.config import FullFF2Config, LoraConfig

Rate = Annotated[float, Field(gt=0, le=10)]


class MethodConfig(Config):
    """One way of changing weights, with its learning rates."""

    method: Annotated[FullFF2Config | LoraConfig, Field(discriminator="kind")]
    """What is trained."""
    rates: tuple[Rate, ...] = Field(min_length=1)
    """Learning rates of this method, each above 0."""
    rates_by_model: dict[str, tuple[Rate, ...]] = Field(default_factory=dict)
    """Other rates of this method for some models, by their shown name."""

    @property
    def name(self) -> str:
        """The method, for people."""
        return method_name(self.method.kind, getattr(self.method, "rank", None))


def method_name(kind: str, rank: Any) -> str:
    """A method, for people: `full FF2` or `LoRA, rank 8`.

    Args:
        kind: `ff2` or `lora`, as in the tables.
        rank: Rank of the adapters; not looked at for `ff2`.
    """
    return f"LoRA, rank {int(rank)}" if kind == "lora" else "full FF2"
