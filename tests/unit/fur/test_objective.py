"""Which positions count and how they add up: against the literal losses of each task on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch
from torch import Tensor

from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import ObjectiveName, RecipeConfig
from fairwitness.fur.objective import GroupObjective, TaskTerms
from fairwitness.fur.objectives import OBJECTIVES
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_reference import PlainPolicy, logprobs_of
from tests.helpers.fur_tasks import make_tasks

RECIPES = {
    "paper": RecipeConfig(),
    "per_word": RecipeConfig(forget_unit="word", kl_direction="reference_from_policy", beta=0.3),
    "retain_reference": RecipeConfig(retain="reference"),
    "npo_grad_diff": RecipeConfig(objective="npo_grad_diff", retain="reference", forget_unit="word"),
    "gradient_ascent": RecipeConfig(objective="gradient_ascent", forget_unit="word"),
    "simnpo": RecipeConfig(objective="simnpo", beta=0.3, gamma=0.5, forget_unit="word"),
}


def _total(objective: GroupObjective) -> TaskTerms:
    return reduce(add, [objective.accumulate(number) for number in range(len(objective.rows()))])


def _objective(
    lm: LanguageModel, tasks: Sequence[UnlearnTask], recipe: RecipeConfig, max_tokens: int = 512
) -> GroupObjective:
    return GroupObjective(lm.model, tasks, recipe, max_tokens=max_tokens, device=lm.device)


def _moved_losses(lm: LanguageModel, tasks: Sequence[UnlearnTask], recipe: RecipeConfig, max_tokens: int) -> TaskTerms:
    with GroupedFF2.full(lm.model, lm.ff2_names, len(tasks)) as variants:
        objective = _objective(lm, tasks, recipe, max_tokens)
        _total(objective)
        _move(variants.parameters())
        return _total(objective)


def _move(parameters: Sequence[Tensor]) -> None:
    for seed, parameter in enumerate(parameters):
        generator = torch.Generator().manual_seed(seed)
        parameter.data += 0.02 * torch.randn(parameter.shape[1:], generator=generator)  # the same for every variant


@pytest.mark.parametrize("max_tokens", [1, 512])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_losses_are_those_of_each_task_alone(recipe: RecipeConfig, max_tokens: int, tiny_llama: LanguageModel) -> None:
    tasks = make_tasks(tiny_llama, 3)
    found = _moved_losses(tiny_llama, tasks, recipe, max_tokens)
    plain = PlainPolicy.of(tiny_llama)
    _move([weight[None] for weight in plain.weights])
    for k, task in enumerate(tasks):
        losses = plain.losses(task, recipe)
        assert found.losses.keys() == losses.keys() == recipe.coefficients.keys()
        for name, expected in losses.items():
            assert found.losses[name][k].item() == pytest.approx(expected.item(), rel=1e-4 if name == "kl" else 1e-5)
            assert abs(expected.item()) > 1e-3


def test_the_mean_is_over_words_and_over_all_retained_positions_together(tiny_llama: LanguageModel) -> None:
    # A retained step with many content tokens weighs more than one with few; a word counts once, however long.
    (task,) = make_tasks(tiny_llama, 1, num_retain=2)
    few, many = (
        StepTokens(span.ids, span.start, words)
        for span, words in zip(task.retain, [((6,),), ((5,), (6, 7))], strict=True)
    )
    together = _moved_losses(tiny_llama, [replace(task, retain=(few, many))], RecipeConfig(), 512).losses["kl"].item()
    alone = [
        _moved_losses(tiny_llama, [replace(task, retain=(span,))], RecipeConfig(), 512).losses["kl"].item()
        for span in (few, many)
    ]
    assert together == pytest.approx((alone[0] + 3 * alone[1]) / 4, rel=1e-4)

    recipe = RecipeConfig(forget_unit="word")
    start = task.forget.start
    words = ((start,), (start + 1, start + 2, start + 3))
    forget = replace(task.forget, words=words)
    both = _moved_losses(tiny_llama, [replace(task, forget=forget)], recipe, 512).losses["npo"].item()
    each = [
        _moved_losses(tiny_llama, [replace(task, forget=replace(forget, words=(word,)))], recipe, 512).losses["npo"]
        for word in words
    ]
    assert both == pytest.approx(sum(value.item() for value in each) / 2, rel=1e-5)


def test_tokens_outside_content_words_do_not_count(tiny_llama: LanguageModel) -> None:
    (task,) = make_tasks(tiny_llama, 1)
    last = max(task.forget.content)
    cut = replace(task, forget=replace(task.forget, ids=(*task.forget.ids[: last + 1], 77, 78, 79)))
    expected = _moved_losses(tiny_llama, [task], RecipeConfig(), 512)
    assert _moved_losses(tiny_llama, [cut], RecipeConfig(), 512).losses["npo"].item() == pytest.approx(
        expected.losses["npo"].item(), rel=1e-5
    )


@pytest.mark.parametrize("max_tokens", [1, 512])
def test_reference_is_what_the_base_gives_and_stays_when_the_weights_move(
    max_tokens: int, tiny_llama: LanguageModel
) -> None:
    tasks = make_tasks(tiny_llama, 3)
    with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 3) as variants:
        objective = _objective(tiny_llama, tasks, RecipeConfig(), max_tokens)
        first = _total(objective)
        start = [parameter.detach().clone() for parameter in variants.parameters()]
        _move(variants.parameters())
        moved = _total(objective)
        for parameter, values in zip(variants.parameters(), start, strict=True):
            parameter.data.copy_(values)
        again = _total(objective)
    reference = first.forget_logprob_K.tolist()
    assert (again.losses["npo"] - first.losses["npo"]).abs().max() < 1e-5
    assert again.losses["kl"].tolist() == [0.0] * 3
    assert first.metrics["log_ratio"].tolist() == [0.0] * 3
    torch.testing.assert_close(moved.metrics["log_ratio"], moved.forget_logprob_K - first.forget_logprob_K)
    assert first.losses["npo"].tolist() == pytest.approx([20 * math.log(2)] * 3)
    assert first.losses["kl"].tolist() == [0.0] * 3
    for task, value in zip(tasks, reference, strict=True):
        logprobs = logprobs_of(tiny_llama.model, task.forget.ids)
        expected = sum(logprobs[p - 1, task.forget.ids[p]].item() for p in task.forget.content)
        assert value == pytest.approx(expected, rel=1e-5)


def test_coefficients_weigh_the_gradient_not_the_reported_terms(tiny_llama: LanguageModel) -> None:
    tasks = make_tasks(tiny_llama, 2)
    gradients, losses = [], []
    for npo, kl in ((1.0, 0.0), (0.0, 1.0), (3.0, 7.0)):
        recipe = RecipeConfig(coefficients={"npo": npo, "kl": kl})
        with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2) as variants:
            objective = _objective(tiny_llama, tasks, recipe)
            _total(objective)
            _move(variants.parameters())
            for parameter in variants.parameters():
                parameter.grad = None
            losses.append(_total(objective))
        gradients.append([parameter.grad for parameter in variants.parameters()])
    for of_npo, of_kl, of_both in zip(*gradients, strict=True):
        torch.testing.assert_close(of_both, 3 * of_npo + 7 * of_kl, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(losses[0].losses["kl"], losses[2].losses["kl"])
    torch.testing.assert_close(losses[1].losses["npo"], losses[2].losses["npo"])


def test_rows_name_task_and_slot_of_every_batch(tiny_llama: LanguageModel) -> None:
    objective = _objective(tiny_llama, make_tasks(tiny_llama, 2, num_retain=3), RecipeConfig(), max_tokens=1)
    assert sorted(objective.rows()) == [((k, slot),) for k in range(2) for slot in range(4)]
    assert sorted(objective.rows()[:2]) == [((0, 0),), ((1, 0),)]


def test_the_first_pass_differentiates_the_forgotten_rows_only(tiny_llama: LanguageModel) -> None:
    tasks = make_tasks(tiny_llama, 2)
    with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2) as variants:
        objective = _objective(tiny_llama, tasks, RecipeConfig(coefficients={"npo": 0.0}))
        for expected in (0.0, 1.0):
            _total(objective)
            gradients = [parameter.grad for parameter in variants.parameters()]
            assert all(g is not None and (g.abs().max() > 0) == bool(expected) for g in gradients)
            _move(variants.parameters())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_reference_is_held_only_where_it_is_needed(name: ObjectiveName, tiny_llama: LanguageModel) -> None:
    objective = _objective(tiny_llama, make_tasks(tiny_llama, 2), RecipeConfig(objective=name))
    _total(objective)
    held = {batch.is_forget: batch.reference is not None for batch in objective._batches}
    assert held == {True: name.startswith("npo"), False: name == "npo_kl"}


@pytest.mark.parametrize(("nll", "is_differentiated"), [(0.0, False), (1.0, True)])
def test_a_retain_loss_without_weight_is_measured_but_not_differentiated(
    nll: float, is_differentiated: bool, tiny_llama: LanguageModel
) -> None:
    recipe = RecipeConfig(objective="gradient_ascent", coefficients={"ascent": 0.0, "nll": nll})
    with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2) as variants:
        objective = _objective(tiny_llama, make_tasks(tiny_llama, 2), recipe)
        assert _total(objective).losses["nll"].min() > 0.0
        gradients = [parameter.grad for parameter in variants.parameters()]
    assert all((g is not None and bool(g.abs().max() > 0)) == is_differentiated for g in gradients)
