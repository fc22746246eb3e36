"""The same questions asked of every variant: as the evaluation answers them, and as K models do one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fairwitness.chains.items import Ids, Question
from fairwitness.fur import unlearn as module
from fairwitness.fur.config import FullFF2Config, LoraConfig, RecipeConfig
from fairwitness.fur.unlearn import unlearn_group, variant_answers
from fairwitness.lm.grouped import GroupedFF2
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.scoring import answers
from tests.helpers.fur_tasks import engine_config, make_group, make_held_out, make_tasks, random_question

METHODS = {"ff2": FullFF2Config(), "lora": LoraConfig(rank=4, dropout=0.1)}
NUM_TASKS = 8


def questions(lm: LanguageModel, num: int = 40) -> tuple[Question, ...]:
    draw = random.Random(5)
    return tuple(random_question(draw, lm.facts.vocab_size) for _ in range(num))


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_each_variant_answers_as_a_model_with_its_weights(
    model_type: str, tiny_lm: Callable[[str], LanguageModel], fresh_lm: Callable[[str], LanguageModel]
) -> None:
    lm, single, asked = tiny_lm(model_type), fresh_lm(model_type), questions(tiny_lm(model_type))
    variants = GroupedFF2.full(lm.model, lm.ff2_names, 3)
    with torch.no_grad():
        for seed, parameter in enumerate(variants.parameters()):
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    with variants:
        found = variant_answers(lm, asked, 3, max_tokens=64)
    for k in range(3):
        for weight, parameter in zip(single.ff2_weights().values(), variants.parameters(), strict=True):
            weight.data.copy_(parameter[k].detach())
        expected = answers(single.model, [q.ids for q in asked], [q.letter_ids for q in asked], max_tokens=64)
        assert found[k] == tuple(answer.index for answer in expected)
    assert len(set(found)) == 3


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_they_are_the_last_iterations_answers(method: FullFF2Config | LoraConfig, tiny_llama: LanguageModel) -> None:
    """Asked as capability questions, the tasks' own and the held-out questions get the answers of the evaluation."""
    tasks, held_out = make_tasks(tiny_llama, 3), make_held_out(tiny_llama, 4)
    group = make_group(tiny_llama, tasks, RecipeConfig(method=method, num_iterations=2), lr=1e-2, held_out=held_out)
    asked = (*(task.question for task in tasks), *(held.question for held in held_out))
    results = unlearn_group(tiny_llama, replace(group, capability=asked), engine_config())
    for k, result in enumerate(results):
        last = result.measured[-1]
        assert result.capability[k] == last.index
        assert result.capability[len(tasks) :] == last.held_out
        assert 0 < result.capability_s < result.duration_s


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_group_of_eight_equals_eight_groups_of_one(
    method: FullFF2Config | LoraConfig, tiny_llama: LanguageModel
) -> None:
    recipe, asked = RecipeConfig(method=method, num_iterations=3), questions(tiny_llama)

    def run(numbers: list[int], max_tokens: int) -> dict[str, Ids]:
        tasks = make_tasks(tiny_llama, NUM_TASKS)
        group = make_group(tiny_llama, [tasks[n] for n in numbers], recipe, lr=1e-2, held_out=())
        found = unlearn_group(tiny_llama, replace(group, capability=asked), engine_config(max_tokens))
        return {result.task_key: result.capability for result in found}

    alone = {key: choices for n in range(NUM_TASKS) for key, choices in run([n], 512).items()}
    assert run([5, 0, 7, 2, 1, 6, 3, 4], 512) == alone
    assert run(list(range(NUM_TASKS)), 1) == alone
    base = answers(tiny_llama.model, [q.ids for q in asked], [q.letter_ids for q in asked], max_tokens=512)
    assert any(choices != tuple(answer.index for answer in base) for choices in alone.values())


def test_laying_out_in_parts_changes_nothing(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(tiny_llama)
    with GroupedFF2.full(tiny_llama.model, tiny_llama.ff2_names, 2):
        whole = variant_answers(tiny_llama, asked, 2, max_tokens=100)
        monkeypatch.setattr(module, "QUESTIONS_AT_ONCE", 7)
        assert variant_answers(tiny_llama, asked, 2, max_tokens=100) == whole
        assert variant_answers(tiny_llama, (), 2, max_tokens=100) == [(), ()]


def test_nobody_is_asked_without_questions(tiny_llama: LanguageModel) -> None:
    (result,) = unlearn_group(tiny_llama, make_group(tiny_llama, make_tasks(tiny_llama, 1)), engine_config())
    assert result.capability == ()


def test_a_task_that_is_not_finite_gives_no_answers(tiny_llama: LanguageModel) -> None:
    group = make_group(tiny_llama, make_tasks(tiny_llama, 1), lr=1e30)
    (result,) = unlearn_group(tiny_llama, replace(group, capability=questions(tiny_llama, 3)), engine_config())
    assert result.error is not None
    assert result.capability == ()
