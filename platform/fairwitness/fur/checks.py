"""The self-checks that every run starts with (science.md §1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import torch

from fairwitness.chains.items import (
    Ids,
)
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.objective import GroupObjective, objective_of
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup, unlearn_group
from fairwitness.lm.config import EngineConfig
from fairwitness.lm.engine import ModelEngine
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel, checksum
from fairwitness.lm.scoring import TargetTokens, next_token_logits, sequence_logprobs

TOLERANCE_NATS = {torch.float32: 2e-3, torch.bfloat16: 0.35}
"""How far two batch layouts of one model may differ in a logit. bfloat16 keeps 8 bits of each number."""
CHECK_LR = 1e-3


def self_checks(lm: LanguageModel, item: CheckItem, engine: EngineConfig) -> dict[str, SelfCheck]:
    """Checks the arithmetic on real tasks of the run before anything is unlearned.

    - `LOSS_at_start`: a loss whose value before the first update the objective knows has it, in a second pass over
      unchanged weights: `npo` is (2/β)·ln 2, `kl` is 0.
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
        # The first pass becomes the reference, so that the second one's losses are what they must be.
        first, second = (
            reduce(add, [objective.accumulate(number) for number in range(len(objective.rows()))]) for _ in range(2)
        )
    lengths_K = torch.tensor([max(1, len(task.forget.content)) for task in item.tasks])
    difference = float(((torch.tensor(plain) - first.forget_logprob_K.cpu()).abs() / lengths_K).max())
    checks = {}
    for name, expected in objective_of(item.recipe).at_start().items():
        error = float((second.losses[name] - expected).abs().max())
        if expected:
            detail = f"relative error of the loss {name} against {expected:.4f}"
            checks[f"{name}_at_start"] = SelfCheck(error / abs(expected), 1e-5, detail)
        else:
            checks[f"{name}_at_start"] = SelfCheck(error, 1e-6, "nats")
    return checks | {
        "policy_minus_reference": SelfCheck(difference, tolerance, "nats per token, grouped against plain")
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


@dataclass(frozen=True)
class CheckItem:
    """The self-checks of a run on a few real tasks. Gives a dict of `SelfCheck` by name."""

    tasks: tuple[UnlearnTask, ...]
    recipe: RecipeConfig
    prompts: tuple[Ids, ...]

    def answer(self, engine: ModelEngine) -> dict[str, SelfCheck]:
        """See `self_checks`."""
        return self_checks(engine.lm, self, engine.config)


@dataclass(frozen=True)
class SelfCheck:
    """One self-check: what was measured, and the largest value that passes."""

    value: float
    limit: float
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the value is within the limit (a value that is not a number is not)."""
        return self.value <= self.limit

    @property
    def as_json(self) -> dict[str, Any]:
        """For the health figures of a job."""
        return {**vars(self), "ok": self.ok}
