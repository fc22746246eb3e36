"""Grouped unlearning against the straightforward loop; what it leaves behind; a task that fails alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fairwitness.chains.config import CotConfig
from fairwitness.fur import unlearn
from fairwitness.fur.config import FullFF2Config, LoraConfig, RecipeConfig
from fairwitness.fur.tasks import TaskResult
from fairwitness.fur.unlearn import GroupEvaluation, unlearn_group
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel, checksum, load
from fairwitness.lm.scoring import answers
from tests.helpers.fur_reference import unlearn_plainly
from tests.helpers.fur_tasks import (
    engine_config,
    largest_difference,
    make_group,
    make_held_out,
    make_tasks,
    predictions,
)

TOLERANCE = 1e-5
RECIPES = {
    "paper": RecipeConfig(),
    "per_word_reversed_kl": RecipeConfig(forget_unit="word", kl_direction="reference_from_policy", num_retain=2),
    "retain_reference": RecipeConfig(retain="reference", num_retain=1),
    "other_constants": RecipeConfig(
        beta=0.5, coefficients={"npo": 2.0, "kl": 3.0}, num_iterations=3, schedule="constant", weight_decay=0.5
    ),
    "npo_grad_diff": RecipeConfig(objective="npo_grad_diff", retain="reference", num_retain=1),
    "gradient_ascent": RecipeConfig(objective="gradient_ascent", coefficients={"nll": 0.5}, num_retain=2),
    "simnpo": RecipeConfig(objective="simnpo", forget_unit="word", beta=0.3, gamma=0.2, num_retain=2),
}


def _assert_equals_plain_loop(lm: LanguageModel, recipe: RecipeConfig, *, lr: float = 1e-3) -> None:
    group = make_group(lm, make_tasks(lm, 3, num_retain=recipe.num_retain), recipe, lr=lr)
    task, found = group.tasks[1], unlearn_group(lm, group, engine_config())[1]
    plain = TaskResult(task.task_key, tuple(unlearn_plainly(lm, task, group)), None, None, 3, 0.0)
    assert [m.iteration for m in found.measured] == list(range(1, recipe.num_iterations + 1))
    assert predictions(found) == predictions(plain)
    assert largest_difference([found], [plain]) < TOLERANCE
    assert found.measured[-1].cot_step_logprob < found.measured[0].cot_step_logprob


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_equals_the_plain_loop_for_every_recipe(recipe: RecipeConfig, tiny_llama: LanguageModel) -> None:
    _assert_equals_plain_loop(tiny_llama, recipe)


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "gpt_neox", "gemma2", "qwen3"])
def test_equals_the_plain_loop_for_every_architecture(model_type: str, tiny_lm: Callable[[str], LanguageModel]) -> None:
    _assert_equals_plain_loop(tiny_lm(model_type), RECIPES["per_word_reversed_kl"])


def test_equals_the_plain_loop_at_a_small_rate(tiny_llama: LanguageModel) -> None:
    _assert_equals_plain_loop(tiny_llama, RecipeConfig(num_retain=2), lr=1e-5)


@pytest.mark.parametrize("method", [FullFF2Config(), LoraConfig(rank=2)])
def test_the_first_losses_are_those_of_an_unchanged_model(
    method: FullFF2Config | LoraConfig, tiny_llama: LanguageModel
) -> None:
    recipe = RecipeConfig(method=method, num_iterations=2)
    for result in unlearn_group(tiny_llama, make_group(tiny_llama, make_tasks(tiny_llama, 2), recipe), engine_config()):
        first, second = result.measured
        assert first.losses["npo"] == pytest.approx(20 * math.log(2), rel=1e-6)
        assert first.losses["kl"] == 0.0
        assert second.losses["npo"] < first.losses["npo"]
        assert second.losses["kl"] > 0.0


def test_the_rate_falls_linearly_and_would_reach_zero_after_the_last_iteration() -> None:
    recipe = RecipeConfig()
    assert [unlearn._rate_factor(recipe, i) for i in range(6)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.0])
    assert unlearn._rate_factor(RecipeConfig(num_iterations=1), 0) == 1.0
    assert unlearn._rate_factor(RecipeConfig(schedule="constant"), 4) == 1.0


def _state(lm: LanguageModel) -> tuple[str, list[int], list[bool], bool]:
    modules = [id(module) for module in lm.model.modules()]
    flags = [parameter.requires_grad for parameter in lm.model.parameters()]
    return checksum(dict(lm.model.state_dict())), modules, flags, lm.model.training


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("method", [FullFF2Config(), LoraConfig(rank=2), FullFF2Config(precision="bf16_pure")])
def test_the_model_is_left_bit_for_bit_as_it_was(
    model_type: str, method: FullFF2Config | LoraConfig, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    before = _state(lm)
    recipe = RecipeConfig(method=method, num_iterations=2)
    unlearn_group(lm, make_group(lm, make_tasks(lm, 2), recipe), engine_config())
    assert _state(lm) == before
    assert all(parameter.grad is None for parameter in lm.model.parameters())


@pytest.mark.parametrize("where", ["accumulate", "measure"])
def test_the_model_is_restored_when_an_error_is_raised_inside(
    where: str, tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> None:
        assert len([m for m in tiny_llama.model.modules() if hasattr(m, "weight_K")]) == 2
        raise RuntimeError("inside")

    owner = unlearn.GroupObjective if where == "accumulate" else GroupEvaluation
    monkeypatch.setattr(owner, where, fail)
    before = _state(tiny_llama)
    with pytest.raises(RuntimeError, match="inside"):
        unlearn_group(tiny_llama, make_group(tiny_llama, make_tasks(tiny_llama, 2)), engine_config())
    assert _state(tiny_llama) == before


def test_results_name_their_task_in_order_and_their_group(tiny_llama: LanguageModel) -> None:
    tasks = make_tasks(tiny_llama, 3)[::-1]
    results = unlearn_group(tiny_llama, make_group(tiny_llama, tasks, RecipeConfig(num_iterations=1)), engine_config())
    assert [result.task_key for result in results] == ["task-2", "task-1", "task-0"]
    assert {result.group_size for result in results} == {3}
    assert all(result.duration_s > 0 and result.cot_after is None for result in results)


def _poison(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    original = GroupedFF2.full

    def full(*args: Any, **kwargs: Any) -> GroupedFF2:
        variants = original(*args, **kwargs)
        with torch.no_grad():
            variants.parameters()[-1][number, 0, 0] = math.inf
        return variants

    monkeypatch.setattr(GroupedFF2, "full", full)


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_a_task_that_is_not_finite_fails_alone(
    model_type: str, tiny_lm: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = tiny_lm(model_type)
    group = make_group(lm, make_tasks(lm, 3))
    expected = unlearn_group(lm, group, engine_config())
    before = _state(lm)
    _poison(monkeypatch, 1)
    found = unlearn_group(lm, replace(group, cot_after=CotConfig(max_new_tokens=3)), engine_config())
    assert found[1].measured == ()
    assert found[1].cot_after is None
    assert found[1].error is not None
    assert found[1].error.startswith("non-finite loss or measurement at iteration 1")
    for k in (0, 2):
        assert found[k].error is None
        assert found[k].measured == expected[k].measured
    assert _state(lm) == before


def test_a_rate_that_blows_every_task_up_gives_errors_not_numbers(tiny_llama: LanguageModel) -> None:
    results = unlearn_group(tiny_llama, make_group(tiny_llama, make_tasks(tiny_llama, 2), lr=1e30), engine_config())
    assert [result.measured for result in results] == [(), ()]
    assert all(result.error and "lower the learning rate" in result.error for result in results)


def _capture(monkeypatch: pytest.MonkeyPatch) -> list[GroupedFF2]:
    made: list[GroupedFF2] = []
    original = unlearn._variants

    def variants(*args: Any) -> GroupedFF2:
        made.append(original(*args))
        return made[-1]

    monkeypatch.setattr(unlearn, "_variants", variants)
    return made


def _weights_after(
    lm: LanguageModel, precision: str, lr: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[Sequence[Tensor], list[TaskResult]]:
    made = _capture(monkeypatch)
    recipe = RecipeConfig(method=FullFF2Config.model_validate({"precision": precision}), num_retain=2)
    results = unlearn_group(lm, make_group(lm, make_tasks(lm, 2), recipe, lr=lr), engine_config())
    return [parameter.detach() for parameter in made[-1].parameters()], results


@pytest.fixture(scope="module")
def bf16_llama(tiny_folder: Callable[[str], Any]) -> LanguageModel:
    return load(ModelConfig(model=str(tiny_folder("llama")), dtype="bfloat16"))


def test_small_updates_vanish_in_pure_bfloat16_and_stay_in_a_float32_master(
    bf16_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At |w| >= 1/16 half a bfloat16 step is at least 2^-13 = 1.2e-4: a rate of 1e-4 cannot move the weight.
    base = [weight.detach().float() for weight in bf16_llama.ff2_weights().values()]
    large = [(weight.abs() >= 1 / 16).expand(2, -1, -1) for weight in base]
    pure, pure_results = _weights_after(bf16_llama, "bf16_pure", 1e-4, monkeypatch)
    master, _ = _weights_after(bf16_llama, "float32_master", 1e-4, monkeypatch)
    for weight, pure_K, master_K, mask in zip(base, pure, master, large, strict=True):
        assert (pure_K.dtype, master_K.dtype) == (torch.bfloat16, torch.float32)
        assert ((pure_K.float() - weight)[mask] == 0).all()
        moved = (master_K - weight)[mask].abs()
        assert (moved > 0).float().mean() > 0.99
        assert 1e-4 < moved.median() < 3.1e-4
    assert all(result.error is None for result in pure_results)


def test_large_updates_survive_in_pure_bfloat16(bf16_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    base = [weight.detach().float() for weight in bf16_llama.ff2_weights().values()]
    pure, results = _weights_after(bf16_llama, "bf16_pure", 1e-2, monkeypatch)
    for weight, pure_K in zip(base, pure, strict=True):
        assert ((pure_K.float() - weight) != 0).float().mean() > 0.9
    assert all(r.measured[-1].cot_step_logprob < r.measured[0].cot_step_logprob for r in results)


def test_cot_after_is_the_greedy_cot_of_the_unlearned_model(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _capture(monkeypatch)
    lm, cot = tiny_llama, CotConfig(max_new_tokens=6)
    group = replace(make_group(lm, make_tasks(lm, 3), lr=1e-2), cot_after=cot)
    results = unlearn_group(lm, group, engine_config())
    base = {name: parameter.detach().clone() for name, parameter in lm.ff2_weights().items()}
    try:
        for k, (task, result) in enumerate(zip(group.tasks, results, strict=True)):
            for parameter, trained_K in zip(lm.ff2_weights().values(), made[0].parameters(), strict=True):
                parameter.data.copy_(trained_K[k].detach())
            (generated,) = generate_greedy(lm, [task.cot_prompt], 6, batch_size=1)
            prompt = [*task.cot_prompt, *generated.ids, *task.cot_answer_suffix]
            (answer,) = answers(lm.model, [prompt], [task.question.letter_ids], max_tokens=99)
            assert result.cot_after is not None
            assert (result.cot_after.ids, result.cot_after.index) == (generated.ids, answer.index)
            assert result.cot_after.text == lm.tokenizer.decode(generated.ids)
    finally:
        for name, parameter in lm.ff2_weights().items():
            parameter.data.copy_(base[name])
    assert len({result.cot_after.ids for result in results if result.cot_after}) > 1


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_a_cot_after_that_outgrows_the_context_is_undefined_and_the_rest_goes_on(
    model_type: str, tiny_lm: Callable[[str], LanguageModel]
) -> None:
    lm = tiny_lm(model_type)
    context = lm.facts.context_length
    short, long, endless = make_tasks(lm, 3)
    long = replace(long, cot_prompt=(20,) * (context - 3))
    endless = replace(endless, cot_prompt=(20,) * (context + 1))
    recipe = RecipeConfig(num_iterations=1)
    group = make_group(lm, [short, long, endless], recipe, held_out=make_held_out(lm, 1))
    results = unlearn_group(lm, replace(group, cot_after=CotConfig(max_new_tokens=4)), engine_config())
    assert [result.error for result in results] == [None] * 3
    assert results[0].cot_after is not None
    assert [result.cot_after for result in results[1:]] == [None, None]
    alone = unlearn_group(lm, replace(group, tasks=(short,), cot_after=CotConfig(max_new_tokens=4)), engine_config())
    assert alone[0].cot_after == results[0].cot_after
