"""A task's result does not depend on its group: alone or with seven others, in any order, however its rows are batched.

Floats agree to 1e-5 relative in float32. A KL term below 0.01 nats is the difference of larger numbers; it agrees to
1e-7 nats.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from fairwitness.fur.config import FullFF2Config, LoraConfig, RecipeConfig
from fairwitness.fur.tasks import TaskResult, UnlearnTask
from fairwitness.fur.unlearn import unlearn_group
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_tasks import (
    engine_config,
    largest_difference,
    make_group,
    make_held_out,
    make_tasks,
    predictions,
)

TOLERANCE = 1e-5
NUM_TASKS = 8
METHODS = {"ff2": FullFF2Config(), "lora": LoraConfig(rank=4, dropout=0.1)}


def _tasks(lm: LanguageModel) -> tuple[UnlearnTask, ...]:
    tasks = make_tasks(lm, NUM_TASKS)
    lengths = {len(span.ids) for task in tasks for span in (task.forget, *task.retain)}
    assert len(lengths) > 10
    assert len({len(task.forget.content) for task in tasks}) > 2
    return tasks


def _run(
    lm: LanguageModel, tasks: Sequence[UnlearnTask], recipe: RecipeConfig, lr: float, max_tokens: int = 512
) -> dict[str, TaskResult]:
    group = make_group(lm, tasks, recipe, lr=lr, held_out=make_held_out(lm, 3))
    return {result.task_key: result for result in unlearn_group(lm, group, engine_config(max_tokens))}


def _alone(lm: LanguageModel, tasks: Sequence[UnlearnTask], recipe: RecipeConfig, lr: float) -> dict[str, TaskResult]:
    return {key: result for task in tasks for key, result in _run(lm, [task], recipe, lr).items()}


def _assert_same(found: dict[str, TaskResult], expected: dict[str, TaskResult]) -> None:
    assert found.keys() == expected.keys()
    for key, result in expected.items():
        assert result.error is None
        assert predictions(found[key]) == predictions(result)
    assert largest_difference((found[key] for key in expected), expected.values()) < TOLERANCE


@pytest.mark.parametrize("lr", [1e-5, 1e-3])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("model_type", ["llama", "opt"])
def test_a_group_of_eight_in_any_order_equals_eight_groups_of_one(
    model_type: str, method: FullFF2Config | LoraConfig, lr: float, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm, recipe = tiny_lm(model_type), RecipeConfig(method=method)
    tasks = _tasks(lm)
    shuffled = random.Random(7).sample(tasks, NUM_TASKS)
    alone = _alone(lm, tasks, recipe, lr)
    _assert_same(_run(lm, shuffled, recipe, lr), alone)
    changes = [result.measured[-1].cot_step_logprob - result.measured[0].cot_step_logprob for result in alone.values()]
    assert max(changes) < 0  # the tasks do unlearn, so that equality says something


@pytest.mark.parametrize("model_type", ["gpt2", "gemma2", "qwen3", "gpt_neox"])
def test_groups_of_every_architecture(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    lm = tiny_lm(model_type)
    recipe, tasks = RecipeConfig(num_iterations=3), _tasks(lm)
    _assert_same(_run(lm, tasks, recipe, 1e-3), _alone(lm, tasks, recipe, 1e-3))


@pytest.mark.parametrize("rank", [1, 8, 32, 128])
def test_groups_of_every_rank_with_dropout(rank: int, tiny_llama: LanguageModel) -> None:
    """Ranks of the paper; 128 is more than either side of this model's FF2."""
    recipe, tasks = RecipeConfig(method=LoraConfig(rank=rank, dropout=0.1)), _tasks(tiny_llama)
    _assert_same(_run(tiny_llama, tasks, recipe, 1e-3), _alone(tiny_llama, tasks, recipe, 1e-3))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("max_tokens", [1, 300, 100_000])
def test_the_batching_changes_nothing(
    max_tokens: int, method: FullFF2Config | LoraConfig, tiny_llama: LanguageModel
) -> None:
    recipe, tasks = RecipeConfig(method=method, num_iterations=3), _tasks(tiny_llama)
    expected = _run(tiny_llama, tasks, recipe, 1e-3, 1_000)
    _assert_same(_run(tiny_llama, tasks, recipe, 1e-3, max_tokens), expected)


@pytest.mark.parametrize(
    "recipe",
    [
        RecipeConfig(forget_unit="word", kl_direction="reference_from_policy", num_iterations=3),
        RecipeConfig(retain="reference", num_iterations=3),
        RecipeConfig(objective="npo_grad_diff", num_iterations=3),
        RecipeConfig(objective="gradient_ascent", num_iterations=3),
        RecipeConfig(objective="simnpo", beta=0.5, num_iterations=3),
    ],
    ids=["word", "retain_reference", "npo_grad_diff", "gradient_ascent", "simnpo"],
)
def test_groups_of_every_recipe(recipe: RecipeConfig, tiny_llama: LanguageModel) -> None:
    tasks = _tasks(tiny_llama)
    _assert_same(_run(tiny_llama, tasks, recipe, 1e-3), _alone(tiny_llama, tasks, recipe, 1e-3))


def test_tasks_with_one_another_as_neighbours_keep_their_own_seeds(tiny_llama: LanguageModel) -> None:
    recipe = RecipeConfig(method=METHODS["lora"], num_iterations=2)
    results = _run(tiny_llama, _tasks(tiny_llama)[:2], recipe, 1e-3)
    no_dropout = RecipeConfig(method=LoraConfig(rank=4, dropout=0.0), num_iterations=2)
    without = _run(tiny_llama, _tasks(tiny_llama)[:2], no_dropout, 1e-3)
    assert largest_difference(results.values(), without.values()) > 1e-4  # dropout was on in the tests above
