"""The FUR engine: one loaded model that answers every kind of request of a run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fairwitness.fur.base import answer_directly, score_steps, write_cots
from fairwitness.fur.baselines.shap_engine import explain
from fairwitness.fur.checks import self_checks
from fairwitness.fur.config import EngineConfig
from fairwitness.fur.items import AnswerItem, CapacityItem, CheckItem, CotItem, ShapItem, StepScoreItem
from fairwitness.fur.memory import capacity
from fairwitness.fur.tasks import TaskResult, UnlearnGroup
from fairwitness.fur.unlearn import unlearn_group
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.heap import keep_freed_memory
from fairwitness.lm.memory_errors import free_memory, within_memory
from fairwitness.lm.model import LanguageModel, load

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FurSpec:
    """Recipe of a FUR engine: which model, and how it may use its device."""

    model: ModelConfig
    engine: EngineConfig

    def build(self) -> FurEngine:
        """Loads the model.

        Raises:
            ModelError: It cannot be used as it is.
        """
        if self.model.device == "cpu":
            keep_freed_memory()
        return FurEngine(load(self.model), self.engine)


class FurEngine:
    """Owns one loaded model. There is no second one: the reference is the model before its first update."""

    def __init__(self, lm: LanguageModel, config: EngineConfig) -> None:
        self.lm, self.config = lm, config

    def run(self, item: Any) -> Any:
        """Answers one request; see `fairwitness.fur.items` and `UnlearnGroup` for what each kind gives.

        Raises:
            TypeError: The item is of no known kind.
        """
        tokens = self.config.max_tokens
        match item:
            case UnlearnGroup():
                return self.unlearn(item)
            case AnswerItem():
                return answer_directly(self.lm, item, max_tokens=tokens)
            case CotItem():
                return write_cots(self.lm, item, max_tokens=tokens)
            case StepScoreItem():
                return score_steps(self.lm, item, max_tokens=tokens)
            case ShapItem():
                return explain(self.lm, item, max_tokens=tokens)
            case CheckItem():
                return self_checks(self.lm, item, self.config)
            case CapacityItem():
                return capacity(self.lm, item.longest, item.recipe, self.config)
        raise TypeError(f"no engine request: {type(item).__name__}")

    def unlearn(self, group: UnlearnGroup) -> list[TaskResult]:
        """Unlearns a group; where memory runs out, in halves. A single task that does not fit ends with an error."""
        results = within_memory(partial(unlearn_group, self.lm, group, self.config))
        if results is not None:
            return results
        size = len(group.tasks)
        if size == 1:
            message = "out of memory with one task; lower engine.max_tokens or take a smaller model"
            return [TaskResult(group.tasks[0].task_key, (), message, None, 1, 0.0)]
        log.warning("out of memory with %d tasks at once; going on with %d", size, (size + 1) // 2)
        half = (size + 1) // 2
        parts = (group.tasks[:half], group.tasks[half:])
        return [result for tasks in parts for result in self.unlearn(replace(group, tasks=tasks))]

    def close(self) -> None:
        """Frees the model."""
        del self.lm
        free_memory()
