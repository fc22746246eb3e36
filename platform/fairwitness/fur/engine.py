"""The FUR engine: one loaded model that answers every kind of request of a run."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairwitness.followups.baselines.cc_shap import explain
from fairwitness.fur.base import answer_directly, score_steps, write_cots
from fairwitness.fur.config import EngineConfig
from fairwitness.fur.items import AnswerItem, CapacityItem, CheckItem, CotItem, SelfCheck, ShapItem, StepScoreItem
from fairwitness.fur.memory import capacity
from fairwitness.fur.objective import GroupObjective
from fairwitness.fur.tasks import TaskResult, UnlearnGroup
from fairwitness.fur.unlearn import unlearn_group
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.memory import free_memory, keep_freed_memory, within_memory
from fairwitness.lm.model import LanguageModel, checksum, load
from fairwitness.lm.scoring import TargetTokens, next_token_logits, sequence_logprobs

TOLERANCE_NATS = {torch.float32: 2e-3, torch.bfloat16: 0.35}
"""How far two batch layouts of one model may differ in a logit. bfloat16 keeps 8 bits of each number."""
CHECK_LR = 1e-3


def self_checks(lm: LanguageModel, item: CheckItem, engine: EngineConfig) -> dict[str, SelfCheck]:
    """Checks the arithmetic on real tasks of the run before anything is unlearned.

    - `npo_at_start`: the NPO loss of a second pass over unchanged weights is (2/β)·ln 2.
    - `kl_at_start`: the KL term of that pass is 0.
    - `policy_minus_reference`: the grouped model gives the log-probabilities of the plain one.
    - `left_padding`: a left-padded batch gives the logits of the prompts alone.
    - `restored`: FF2 checksums before and after a real update are the same.
    """
    before = checksum(lm.ff2_weights())
    tolerance = TOLERANCE_NATS[next(lm.model.parameters()).dtype]
    found = _at_start(lm, item, max_tokens=engine.max_tokens, tolerance=tolerance)
    padding = _left_padding_difference(lm, item.prompts)
    found["left_padding"] = SelfCheck(padding, tolerance, "largest difference of a logit, padded against alone")
    recipe = item.recipe.model_copy(update={"num_iterations": 1})
    unlearn_group(lm, UnlearnGroup(item.tasks, recipe, CHECK_LR, (), None), engine)
    changed = float(checksum(lm.ff2_weights()) != before)
    found["restored"] = SelfCheck(changed, 0.0, f"FF2 checksum {before[:12]} before and after")
    return found


def _at_start(lm: LanguageModel, item: CheckItem, *, max_tokens: int, tolerance: float) -> dict[str, SelfCheck]:
    plain = [_plain_logprob(lm, task.forget.ids, task.forget.content, max_tokens) for task in item.tasks]
    with GroupedFF2.full(lm.model, lm.ff2_names, len(item.tasks)):
        objective = GroupObjective(lm.model, item.tasks, item.recipe, max_tokens=max_tokens, device=lm.device)
        numbers = range(len(objective.rows()))
        for number in numbers:
            objective.accumulate(
                number
            )  # this pass becomes the reference, so that its own losses are what they must be
        parts = [objective.accumulate(number) for number in numbers]
        npo_K: Tensor = torch.stack([part.npo_K for part in parts]).sum(0)
        kl_K: Tensor = torch.stack([part.kl_K for part in parts]).sum(0)
        grouped = objective.reference_logprobs()
    expected = 2.0 / item.recipe.beta * math.log(2.0)
    npo_error = float((npo_K - expected).abs().max()) / expected
    lengths_K = torch.tensor([max(1, len(task.forget.content)) for task in item.tasks])
    difference = float(((torch.tensor(plain) - torch.tensor(grouped)).abs() / lengths_K).max())
    return {
        "npo_at_start": SelfCheck(npo_error, 1e-5, f"relative error against (2/β)·ln 2 = {expected:.4f}"),
        "kl_at_start": SelfCheck(float(kl_K.abs().max()), 1e-6, "nats"),
        "policy_minus_reference": SelfCheck(difference, tolerance, "nats per token, grouped against plain"),
    }


def _plain_logprob(lm: LanguageModel, ids: tuple[int, ...], content: tuple[int, ...], max_tokens: int) -> float:
    (logprobs,) = sequence_logprobs(lm.model, [TargetTokens(ids, content)], max_tokens=max_tokens)
    return float(logprobs.sum())


@torch.no_grad()
def _left_padding_difference(lm: LanguageModel, prompts: tuple[tuple[int, ...], ...]) -> float:
    alone = [next_token_logits(lm.model, [ids], max_tokens=1)[0] for ids in prompts]
    longest = max(map(len, prompts))
    rows = [[lm.facts.pad_id] * (longest - len(ids)) + list(ids) for ids in prompts]
    mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
    mask_BT = torch.tensor(mask, device=lm.device)
    position_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
    output = lm.model(
        input_ids=torch.tensor(rows, device=lm.device),
        attention_mask=mask_BT,
        position_ids=position_BT,
        use_cache=False,
    )
    padded = output.logits[:, -1].float().cpu()
    return float((torch.stack(alone) - padded).abs().max())


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
