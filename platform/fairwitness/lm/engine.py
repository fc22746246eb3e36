"""The engine of every measure: one loaded model that requests are put to. What a request wants, it says itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from fairwitness.lm.config import EngineConfig, ModelConfig
from fairwitness.lm.memory import free_memory, keep_freed_memory
from fairwitness.lm.model import LanguageModel, load


class Request(Protocol):
    """Something that is asked of a loaded model: small, immutable and picklable, for it crosses processes."""

    def answer(self, engine: ModelEngine) -> Any:
        """Computes the answer, which is picklable too.

        Raises:
            FairwitnessError: It cannot be answered; it is not tried again.
        """


@dataclass(frozen=True)
class ModelSpec:
    """Recipe of an engine: which model, and how it may use its device. Equal specs share one loaded model."""

    model: ModelConfig
    engine: EngineConfig = field(default_factory=EngineConfig)

    def build(self) -> ModelEngine:
        """Loads the model.

        Raises:
            ModelError: It cannot be used as it is.
        """
        if self.model.device == "cpu":
            keep_freed_memory()
        return ModelEngine(load(self.model), self.engine)


class ModelEngine:
    """Owns one loaded model."""

    def __init__(self, lm: LanguageModel, config: EngineConfig | None = None) -> None:
        self.lm, self.config = lm, config or EngineConfig()

    def run(self, item: Request) -> Any:
        """The answer to one request.

        Raises:
            TypeError: The item is no request.
            FairwitnessError: See `Request.answer`.
        """
        if not hasattr(item, "answer"):
            raise TypeError(f"no engine request: {type(item).__name__}")
        return item.answer(self)

    def close(self) -> None:
        """Frees the model."""
        del self.lm
        free_memory()
