"""The self-checks pass on sound models of every kind and fail on what each of them is there to catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fairwitness.fur.checks import CheckItem, SelfCheck, self_checks
from fairwitness.fur.config import LoraConfig, ObjectiveName, RecipeConfig
from fairwitness.fur.objectives import npo_kl
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.grouped import GroupedFF2, GroupedLinear
from fairwitness.lm.model import LanguageModel, checksum, load
from tests.helpers.fur_tasks import engine_config, make_tasks

NAMES = {"npo_at_start", "kl_at_start", "policy_minus_reference", "left_padding", "restored"}


def _checks(lm: LanguageModel, recipe: RecipeConfig | None = None, max_tokens: int = 512) -> dict[str, SelfCheck]:
    tasks = make_tasks(lm, 3)
    item = CheckItem(tasks, recipe or RecipeConfig(), tuple(task.question.ids for task in tasks))
    return self_checks(lm, item, engine_config(max_tokens))


def _failed(checks: dict[str, SelfCheck]) -> set[str]:
    assert checks.keys() == NAMES
    return {name for name, check in checks.items() if not check.ok}


@pytest.mark.parametrize(
    "model_type", ["llama", "gpt2", "opt", "gpt_neox", "gemma2", "gemma3_text", "qwen3", "bloom", "mpt"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_pass_on_sound_models(model_type: str, dtype: str, tiny_folder: Callable[[str], Path]) -> None:
    lm = load(ModelConfig.model_validate({"model": str(tiny_folder(model_type)), "dtype": dtype}))
    assert _failed(_checks(lm)) == set()


@pytest.mark.parametrize(
    "recipe",
    [RecipeConfig(beta=0.5, forget_unit="word", retain="reference", num_retain=1), RecipeConfig(method=LoraConfig())],
    ids=["per_word", "lora"],
)
def test_all_pass_for_other_recipes_and_batches(recipe: RecipeConfig, tiny_llama: LanguageModel) -> None:
    assert _failed(_checks(tiny_llama, recipe, max_tokens=1)) == set()


@pytest.mark.parametrize(
    ("name", "known"),
    [("npo_grad_diff", {"npo_at_start"}), ("gradient_ascent", set()), ("simnpo", set())],
)
def test_losses_are_checked_where_their_start_is_known(
    name: ObjectiveName, known: set[str], tiny_llama: LanguageModel
) -> None:
    checks = _checks(tiny_llama, RecipeConfig(objective=name))
    assert checks.keys() == known | {"policy_minus_reference", "left_padding", "restored"}
    assert all(check.ok for check in checks.values())


def test_they_leave_the_model_as_it_was(tiny_llama: LanguageModel) -> None:
    before = checksum(dict(tiny_llama.model.state_dict()))
    _checks(tiny_llama)
    assert checksum(dict(tiny_llama.model.state_dict())) == before
    assert not any(parameter.requires_grad for parameter in tiny_llama.model.parameters())


def test_a_grouped_module_that_computes_something_else_is_caught(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GroupedLinear.forward
    monkeypatch.setattr(GroupedLinear, "forward", lambda self, hidden: 1.05 * original(self, hidden))
    assert _failed(_checks(tiny_llama)) == {"policy_minus_reference"}


def test_a_result_that_is_not_a_number_is_caught(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    original = GroupedLinear.forward

    def last_is_nan(self: GroupedLinear, hidden: Tensor) -> Tensor:
        out = original(self, hidden)
        return torch.cat([out[:-1], out[-1:] * float("nan")])

    monkeypatch.setattr(GroupedLinear, "forward", last_is_nan)
    assert _failed(_checks(tiny_llama, max_tokens=1)) == {"npo_at_start", "kl_at_start", "policy_minus_reference"}


def test_a_model_that_computes_something_else_each_time_is_caught(fresh_lm: Callable[[str], LanguageModel]) -> None:
    lm = fresh_lm("gpt2")
    lm.model.train()  # its dropout is on
    assert {"npo_at_start", "kl_at_start", "left_padding"} <= _failed(_checks(lm))


@pytest.mark.parametrize(("name", "expected"), [("npo_loss", "npo_at_start"), ("kl_divergence", "kl_at_start")])
def test_a_wrong_loss_is_caught(
    name: str, expected: str, tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(npo_kl, name)
    monkeypatch.setattr(npo_kl, name, lambda *args, **kwargs: original(*args, **kwargs) + 0.01)
    assert _failed(_checks(tiny_llama)) == {expected}


def test_a_model_that_looks_at_padding_is_caught(
    fresh_lm: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = fresh_lm("llama")
    forward = lm.model.forward

    def bare(*, input_ids: Tensor, use_cache: bool, **_mask_and_positions: Any) -> Any:
        return forward(input_ids=input_ids, use_cache=use_cache)

    monkeypatch.setattr(lm.model, "forward", bare)
    assert _failed(_checks(lm)) == {"left_padding"}


def test_weights_that_are_not_restored_are_caught(
    fresh_lm: Callable[[str], LanguageModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = fresh_lm("llama")
    original = GroupedFF2.__exit__

    def write_back(self: GroupedFF2, *args: Any) -> None:
        original(self, *args)
        trained = next(iter(self.parameters()))
        next(iter(lm.ff2_weights().values())).data.copy_(trained[0].detach())

    monkeypatch.setattr(GroupedFF2, "__exit__", write_back)
    assert _failed(_checks(lm)) == {"restored"}


def test_a_check_passes_up_to_its_limit_and_never_without_a_number() -> None:
    assert SelfCheck(0.5, 0.5, "").ok
    assert not SelfCheck(0.6, 0.5, "").ok
    assert not SelfCheck(float("nan"), 0.5, "").ok
