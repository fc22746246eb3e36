"""The gradient that a group accumulates is the slope of the loss, measured by finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.objective import GroupObjective
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_reference import PlainPolicy
from tests.helpers.fur_tasks import make_tasks

NUM_TASKS, NUM_ENTRIES, STEP = 3, 6, 1e-5
RECIPES = {
    "paper": RecipeConfig(num_retain=2, coefficients={"kl": 5.0}),
    "per_word": RecipeConfig(forget_unit="word", kl_direction="reference_from_policy", num_retain=2),
    "kl_alone": RecipeConfig(coefficients={"npo": 0.0}, num_retain=2),
    "retain_reference": RecipeConfig(retain="reference", num_retain=1, coefficients={"kl": 5.0}),
    "npo_grad_diff": RecipeConfig(objective="npo_grad_diff", num_retain=2, coefficients={"nll": 2.0}),
    "gradient_ascent": RecipeConfig(objective="gradient_ascent", num_retain=2, coefficients={"nll": 2.0}),
    "simnpo": RecipeConfig(objective="simnpo", beta=0.3, gamma=0.5, forget_unit="word", num_retain=2),
}


def _moved_gradients(lm: LanguageModel, recipe: RecipeConfig, max_tokens: int) -> tuple[list[Tensor], list[Tensor]]:
    """Weights that were moved away from the base, another way for each task, and the gradients there (K first)."""
    tasks = make_tasks(lm, NUM_TASKS, num_retain=recipe.num_retain)
    generator = torch.Generator().manual_seed(0)
    with GroupedFF2.full(lm.model, lm.ff2_names, NUM_TASKS) as variants:
        objective = GroupObjective(lm.model, tasks, recipe, max_tokens=max_tokens, device=lm.device)
        numbers = range(len(objective.rows()))
        for number in numbers:
            objective.accumulate(number)
        for parameter in variants.parameters():
            parameter.grad = None
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
        for number in numbers:
            objective.accumulate(number)
    weights = [parameter.detach().clone() for parameter in variants.parameters()]
    return weights, [parameter.grad for parameter in variants.parameters() if parameter.grad is not None]


def _slope(weight: Tensor, entry: tuple[int, int], loss: Callable[[], Tensor]) -> float:
    values = []
    start = weight.data[entry].item()
    for change in (STEP, -STEP):
        weight.data[entry] = start + change
        values.append(loss().item())
    weight.data[entry] = start
    return (values[0] - values[1]) / (2 * STEP)


@pytest.mark.parametrize("max_tokens", [1, 10_000], ids=["batch_per_slot", "one_batch"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("model_type", ["gpt2", "opt"])  # the two whose layers compute in float64 throughout
def test_accumulated_gradient_equals_the_slope_of_the_literal_loss(
    model_type: str, recipe: RecipeConfig, max_tokens: int, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    weights, gradients = _moved_gradients(lm, recipe, max_tokens)
    task_number = 0 if max_tokens == 1 else NUM_TASKS - 1
    task = make_tasks(lm, NUM_TASKS, num_retain=recipe.num_retain)[task_number]
    plain = PlainPolicy.of(lm)
    with torch.no_grad():
        for weight, weight_K in zip(plain.weights, weights, strict=True):
            weight.copy_(weight_K[task_number])
        for weight, gradient_K in zip(plain.weights, gradients, strict=True):
            largest = gradient_K[task_number].abs().flatten().topk(NUM_ENTRIES).indices.tolist()
            for index in [*largest[::2], *range(0, weight.numel(), weight.numel() // 2)]:
                entry = divmod(index, weight.shape[1])
                found = gradient_K[task_number][entry].item()
                expected = _slope(weight, entry, lambda: plain.loss(task, recipe))
                assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert max(gradient_K.abs().max().item() for gradient_K in gradients) > 1e-2


def test_the_first_pass_has_no_gradient_of_the_kl_term(tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm("gpt2")
    tasks = make_tasks(lm, 2)
    for max_tokens in (1, 10_000):
        with GroupedFF2.full(lm.model, lm.ff2_names, 2) as variants:
            recipe = RecipeConfig(coefficients={"npo": 0.0})
            objective = GroupObjective(lm.model, tasks, recipe, max_tokens=max_tokens, device=lm.device)
            for number in range(len(objective.rows())):
                objective.accumulate(number)
        assert all(p.grad is None or p.grad.abs().max() == 0 for p in variants.parameters())
