"""FUR the straightforward way, in float64: two models, one sequence at a time, literal formulas, torch's AdamW."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, kl_divergence

from fairwitness.chains.items import Question
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.tasks import IterationResult, UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.lm.model import LanguageModel


@dataclass
class PlainPolicy:
    """A copy of a model whose FF2 weights are trained, and the reference: another copy."""

    policy: nn.Module
    reference: nn.Module
    weights: list[nn.Parameter]

    @classmethod
    def of(cls, lm: LanguageModel) -> PlainPolicy:
        """Both copies in float64."""
        policy, reference = (copy.deepcopy(lm.model).double() for _ in range(2))
        weights = [policy.get_parameter(f"{name}.weight") for name in lm.ff2_names]
        for weight in weights:
            weight.requires_grad_(True)
        return cls(policy, reference, weights)

    def losses(self, task: UnlearnTask, recipe: RecipeConfig) -> dict[str, Tensor]:
        """The losses of a task, as the papers write them."""
        compute: dict[str, Callable[[], Tensor]] = {
            "npo": lambda: _npo(self, task.forget, recipe),
            "kl": lambda: _kl(self, task.retain, recipe),
            "ascent": lambda: _ascent(self, task.forget, recipe),
            "simnpo": lambda: _simnpo(self, task.forget, recipe),
            "nll": lambda: _nll(self, task.retain),
        }
        return {name: compute[name]() for name in recipe.coefficients}

    def loss(self, task: UnlearnTask, recipe: RecipeConfig) -> Tensor:
        """Their weighted sum."""
        losses = self.losses(task, recipe)
        return torch.stack([recipe.coefficients[name] * value for name, value in losses.items()]).sum()


def unlearn_plainly(lm: LanguageModel, task: UnlearnTask, group: UnlearnGroup) -> list[IterationResult]:
    """What `unlearn_group` measures for one task."""
    plain, recipe = PlainPolicy.of(lm), group.recipe
    optimizer = torch.optim.AdamW(plain.weights, lr=group.lr, weight_decay=recipe.weight_decay)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / recipe.num_iterations)
    history = []
    for iteration in range(1, recipe.num_iterations + 1):
        losses = {name: value.item() for name, value in plain.losses(task, recipe).items()}
        plain.loss(task, recipe).backward()
        optimizer.step()
        optimizer.zero_grad()
        if recipe.schedule == "linear":
            decay.step()
        history.append(_measured(plain.policy, task, group, iteration, losses))
    return history


def logprobs_of(model: nn.Module, ids: Sequence[int]) -> Tensor:
    """Log-probabilities (T, V) of the next token after each of the ids."""
    output: Any = model(input_ids=torch.tensor([list(ids)]))
    return torch.log_softmax(output.logits[0], dim=-1)


def _npo(plain: PlainPolicy, step: StepTokens, recipe: RecipeConfig) -> Tensor:
    policy, reference = logprobs_of(plain.policy, step.ids), logprobs_of(plain.reference, step.ids).detach()
    whole = [position for word in step.words for position in word]
    losses = []
    for segment in step.words if recipe.forget_unit == "word" else [whole]:
        ratio = torch.ones((), dtype=torch.float64)
        for position in segment:
            token = step.ids[position]
            ratio = ratio * policy[position - 1, token].exp() / reference[position - 1, token].exp()
        losses.append(2 / recipe.beta * torch.log(1 + ratio**recipe.beta))
    return torch.stack(losses).mean()


def _kl(plain: PlainPolicy, retain: Sequence[StepTokens], recipe: RecipeConfig) -> Tensor:
    divergences = []
    for step in retain:
        content = [position for word in step.words for position in word]
        positions = content if recipe.retain == "content" else list(range(1, len(step.ids) + 1))
        after = [position - 1 for position in positions]
        policy = Categorical(logits=logprobs_of(plain.policy, step.ids)[after])
        reference = Categorical(logits=logprobs_of(plain.reference, step.ids)[after].detach())
        forward = recipe.kl_direction == "policy_from_reference"
        divergences.append(kl_divergence(policy, reference) if forward else kl_divergence(reference, policy))
    return torch.cat(divergences).mean()


def _forgotten(plain: PlainPolicy, step: StepTokens, recipe: RecipeConfig) -> list[list[Tensor]]:
    """Log-probability of every token to be forgotten, one list per sequence."""
    policy = logprobs_of(plain.policy, step.ids)
    whole = [position for word in step.words for position in word]
    segments = step.words if recipe.forget_unit == "word" else [whole]
    return [[policy[position - 1, step.ids[position]] for position in segment] for segment in segments]


def _ascent(plain: PlainPolicy, step: StepTokens, recipe: RecipeConfig) -> Tensor:
    return torch.stack([torch.stack(values).sum() for values in _forgotten(plain, step, recipe)]).mean()


def _simnpo(plain: PlainPolicy, step: StepTokens, recipe: RecipeConfig) -> Tensor:
    losses = []
    for values in _forgotten(plain, step, recipe):
        margin = -recipe.beta / len(values) * torch.stack(values).sum() - recipe.gamma
        losses.append(-2 / recipe.beta * torch.log(1 / (1 + torch.exp(-margin))))
    return torch.stack(losses).mean()


def _nll(plain: PlainPolicy, retain: Sequence[StepTokens]) -> Tensor:
    losses = []
    for step in retain:
        policy = logprobs_of(plain.policy, step.ids)
        losses += [-policy[position - 1, step.ids[position]] for word in step.words for position in word]
    return torch.stack(losses).mean()


@torch.no_grad()
def _measured(
    policy: nn.Module, task: UnlearnTask, group: UnlearnGroup, iteration: int, losses: dict[str, float]
) -> IterationResult:
    own = _answer(policy, task.question)
    held_out = tuple(int(_answer(policy, held.question).argmax()) for held in group.held_out)
    step, logprobs = task.forget, logprobs_of(policy, task.forget.ids)
    scores = [logprobs[position - 1, step.ids[position]].item() for position in range(step.start, len(step.ids))]
    mean, mass = sum(scores) / len(scores), own.sum().item()
    probs = tuple((own / own.sum()).tolist())
    return IterationResult(iteration, probs, mass, int(own.argmax()), mean, held_out, losses, {})


def _answer(policy: nn.Module, question: Question) -> Tensor:
    return logprobs_of(policy, question.ids)[-1].exp()[list(question.letter_ids)]
