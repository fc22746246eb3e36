"""One engine answers every request; memory that runs out halves the group; what crosses a process can be pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairwitness.chains.config import CotConfig
from fairwitness.chains.items import AnswerItem, CotItem, CotRequest, CotSteps, StepScoreItem
from fairwitness.errors import ModelError
from fairwitness.fur import unlearn as engine_module
from fairwitness.fur.checks import CheckItem
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.memory import Capacity, CapacityItem
from fairwitness.fur.tasks import TaskResult
from fairwitness.fur.unlearn import UnlearnGroup, unlearn_group
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.engine import ModelEngine, ModelSpec
from fairwitness.lm.memory import is_out_of_memory
from fairwitness.lm.model import LanguageModel
from tests.helpers.fur_tasks import engine_config, largest_difference, make_group, make_tasks, predictions

RECIPE = RecipeConfig(num_iterations=2, num_retain=2)


def _group(lm: LanguageModel, num: int) -> UnlearnGroup:
    return make_group(lm, make_tasks(lm, num, num_retain=2), RECIPE)


def _engine(lm: LanguageModel) -> ModelEngine:
    return ModelEngine(lm, engine_config())


def _limit_memory(monkeypatch: pytest.MonkeyPatch, most: int, error: Exception) -> list[int]:
    sizes: list[int] = []

    def limited(lm: LanguageModel, group: UnlearnGroup, config: Any) -> list[TaskResult]:
        sizes.append(len(group.tasks))
        if len(group.tasks) > most:
            raise error
        return unlearn_group(lm, group, config)

    monkeypatch.setattr(engine_module, "unlearn_group", limited)
    return sizes


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_out_of_memory_halves_the_group_and_loses_nothing(
    error: Exception, tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = _group(tiny_llama, 7)
    expected = _engine(tiny_llama).run(group)
    sizes = _limit_memory(monkeypatch, 2, error)
    found = _engine(tiny_llama).run(group)
    assert sizes == [7, 4, 2, 2, 3, 2, 1]
    assert [result.task_key for result in found] == [task.task_key for task in group.tasks]
    assert [predictions(result) for result in found] == [predictions(result) for result in expected]
    assert largest_difference(found, expected) < 1e-5
    assert [result.group_size for result in found] == [2, 2, 2, 2, 2, 2, 1]


def test_a_single_task_that_does_not_fit_is_an_error_and_the_rest_goes_on(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(lm: LanguageModel, group: UnlearnGroup, config: Any) -> list[TaskResult]:
        if any(task.task_key == "task-1" for task in group.tasks):
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )
        return unlearn_group(lm, group, config)

    monkeypatch.setattr(engine_module, "unlearn_group", limited)
    results = _engine(tiny_llama).run(_group(tiny_llama, 4))
    assert [bool(result.error) for result in results] == [False, True, False, False]
    assert results[1].error is not None
    assert results[1].error.startswith("out of memory with one task")
    assert results[1].measured == ()


def test_other_errors_are_not_taken_for_lack_of_memory(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _limit_memory(monkeypatch, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        _engine(tiny_llama).run(_group(tiny_llama, 4))
    assert sizes == [4]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("nothing"), False),
    ],
)
def test_is_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_a_real_allocation_that_cannot_be_had_is_recognised() -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def _items(lm: LanguageModel) -> list[tuple[Any, Callable[[Any], bool]]]:
    group = _group(lm, 2)
    task = group.tasks[0]
    request = CotRequest(task.cot_prompt, task.cot_answer_suffix, task.question.letter_ids)
    return [
        (group, lambda r: [x.task_key for x in r] == ["task-0", "task-1"]),
        (AnswerItem((task.question,)), lambda r: len(r[0].probs) == len(task.question.letter_ids)),
        (CotItem((request,), CotConfig(max_new_tokens=3)), lambda r: len(r[0].ids) <= 3),
        (
            StepScoreItem((CotSteps(task.forget.ids, ((task.forget.start, len(task.forget.ids)),)),)),
            lambda r: r[0][0] < 0,
        ),
        (CheckItem(group.tasks, RECIPE, (task.question.ids,)), lambda r: all(check.ok for check in r.values())),
        (CapacityItem(task, RECIPE, (task.question,)), lambda r: isinstance(r, Capacity) and r.group_size >= 1),
    ]


def test_every_request_and_reply_survives_pickling(tiny_llama: LanguageModel) -> None:
    engine = _engine(tiny_llama)
    for item, holds in _items(tiny_llama):
        sent = pickle.loads(pickle.dumps(item))
        assert sent == item
        reply = engine.run(sent)
        assert holds(reply)
        assert pickle.loads(pickle.dumps(reply)) == reply


def test_an_unknown_request_is_refused(tiny_llama: LanguageModel) -> None:
    with pytest.raises(TypeError, match="no engine request: int"):
        _engine(tiny_llama).run(3)


def test_a_spec_travels_and_builds_an_engine_that_can_be_closed(tiny_folder: Callable[[str], Path]) -> None:
    spec = ModelSpec(ModelConfig(model=str(tiny_folder("llama"))), engine_config())
    sent = pickle.loads(pickle.dumps(spec))
    assert sent == spec
    engine = sent.build()
    assert engine.config == spec.engine
    assert engine.lm.facts.model_type == "llama"
    engine.close()
    assert not hasattr(engine, "lm")


def test_a_spec_of_a_missing_model_says_so(tmp_path: Path) -> None:
    spec = ModelSpec(ModelConfig(model=str(tmp_path / "absent")), engine_config())
    with pytest.raises(ModelError, match="absent"):
        spec.build()
