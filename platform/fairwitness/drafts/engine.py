"""The engine of drafts: one loaded model that continues trees of prefixes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from fairwitness.drafts.config import DraftEngineConfig
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import Engine
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import Continuation, Settings, Tree, continue_trees
from fairwitness.lm.heap import keep_freed_memory
from fairwitness.lm.memory_errors import free_memory, within_memory
from fairwitness.lm.model import LanguageModel, load


@dataclass(frozen=True)
class ContinueItem:
    """Trees to continue. Gives, per tree, one `Continuation` per branch."""

    trees: tuple[Tree, ...]
    settings: Settings


@dataclass(frozen=True)
class DraftSpec:
    """Recipe of an engine of drafts: which model, and how it may use its device."""

    model: ModelConfig
    engine: DraftEngineConfig

    def build(self) -> Engine:
        """Loads the model.

        Raises:
            ModelError: It cannot be used as it is, or the backend is not installed.
        """
        if self.engine.backend == "vllm":
            from fairwitness.drafts.vllm_backend import VllmEngine

            return VllmEngine(self.model)
        if self.model.device == "cpu":
            keep_freed_memory()
        return DraftEngine(load(self.model))


class DraftEngine:
    """Owns one loaded model."""

    def __init__(self, lm: LanguageModel) -> None:
        """Takes a loaded model."""
        self.lm: LanguageModel | None = lm

    def run(self, item: ContinueItem) -> list[list[Continuation]]:
        """Continues trees; where memory runs out, in batches of half the size.

        Raises:
            ModelError: Not even one row fits.
        """
        if self.lm is None:
            raise RuntimeError("the engine is closed")
        lm, settings = self.lm, item.settings
        while (found := within_memory(partial(continue_trees, lm, item.trees, settings))) is None:
            if settings.max_cache_tokens == 1:
                raise ModelError("out of memory with one draft; lower limits or take a smaller model")
            settings = replace(settings, max_cache_tokens=max(1, settings.max_cache_tokens // 2))
        return found

    def close(self) -> None:
        """Frees the model."""
        self.lm = None
        free_memory()
