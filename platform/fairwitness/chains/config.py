"""Settings of chains of thought, and what every job that has them is told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairwitness.config import Config
from fairwitness.experiment.config import RunConfig
from fairwitness.lm.config import EngineConfig

EligibleRule = Literal["content_words", "content_tokens"]


class CotConfig(Config):
    """How the CoT is generated."""

    max_new_tokens: int = Field(300, ge=1)
    """Longest CoT, in tokens; it also ends at a blank line or the end-of-text token."""


class ChainsConfig(RunConfig):
    """What a job is told whose models write chains of thought about its problems."""

    cot: CotConfig = CotConfig()
    """How CoTs are generated."""
    engine: EngineConfig = EngineConfig()
    """How the engine uses its device."""

    @property
    def eligible(self) -> EligibleRule:
        """Which cot_steps are long enough to be measured one by one."""
        return "content_words"
