"""Recipe and engine settings: the paper's defaults, bounds, and names that are close to a known one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from fairwitness.chains.config import CotConfig
from fairwitness.config import Config, load_config, parse_yaml, to_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.fur.config import (
    PRESETS,
    FullFF2Config,
    FurSweepConfig,
    LoraConfig,
    MeasureConfig,
    ObjectiveName,
    RecipeConfig,
)
from fairwitness.lm.config import EngineConfig


def test_defaults_are_those_of_the_paper() -> None:
    recipe = RecipeConfig()
    assert (recipe.objective, recipe.forget_unit) == ("npo_kl", "cot_step")
    assert (recipe.retain, recipe.num_retain) == ("content", 4)
    assert recipe.parameters == {"beta": 0.1, "kl_direction": "policy_from_reference"}
    assert (recipe.coefficients, recipe.gamma) == ({"npo": 1.0, "kl": 1.0}, None)
    assert (recipe.num_iterations, recipe.schedule, recipe.weight_decay) == (5, "linear", 0.01)
    assert recipe.method == FullFF2Config(precision="float32_master")
    assert LoraConfig() == LoraConfig(rank=8, alpha=32.0, dropout=0.1)
    assert CotConfig().max_new_tokens == 300
    assert MeasureConfig() == MeasureConfig(disagreeing=False, cot_after=False)
    assert EngineConfig().group_size is None


BAD: list[tuple[type[Config], dict[str, Any], str]] = [
    (RecipeConfig, {"beta": 0.0}, "beta"),
    (RecipeConfig, {"beta": float("nan")}, "beta"),
    (RecipeConfig, {"num_iterations": 0}, "num_iterations"),
    (RecipeConfig, {"num_retain": 0}, "num_retain"),
    (RecipeConfig, {"coefficients": {"npo": -1.0}}, "coefficients.npo"),
    (RecipeConfig, {"coefficients": {"kl": float("inf")}}, "coefficients.kl"),
    (RecipeConfig, {"coefficients": {"nll": 1.0}}, "coefficients: npo_kl has no loss 'nll', only npo and kl"),
    (RecipeConfig, {"coefficients": [1.0]}, "coefficients"),
    (RecipeConfig, {"objective": "simnpo", "gamma": -0.1}, "gamma"),
    (RecipeConfig, {"objective": ["npo_kl"]}, "objective"),
    (RecipeConfig, {"forget_unit": "token"}, "forget_unit"),
    (RecipeConfig, {"weight_decay": -0.01}, "weight_decay"),
    (RecipeConfig, {"objective": "per_token"}, "objective"),
    (RecipeConfig, {"retain": "all"}, "retain"),
    (RecipeConfig, {"kl_direction": "both"}, "kl_direction"),
    (RecipeConfig, {"schedule": "cosine"}, "schedule"),
    (RecipeConfig, {"method": {"kind": "dora"}}, "method"),
    (RecipeConfig, {"method": {"kind": "ff2", "rank": 8}}, "rank"),
    (RecipeConfig, {"method": {"kind": "lora", "rank": 0}}, "rank"),
    (RecipeConfig, {"method": {"kind": "lora", "dropout": 1.0}}, "dropout"),
    (RecipeConfig, {"method": {"kind": "lora", "alpha": 0.0}}, "alpha"),
    (RecipeConfig, {"method": {"precision": "float16", "kind": "ff2"}}, "precision"),
    (CotConfig, {"max_new_tokens": 0}, "max_new_tokens"),
    (EngineConfig, {"group_size": 0}, "group_size"),
    (EngineConfig, {"max_tokens": 0}, "max_tokens"),
    (EngineConfig, {"memory_share": 0.0}, "memory_share"),
    (EngineConfig, {"memory_share": 1.5}, "memory_share"),
]


@pytest.mark.parametrize(("cls", "data", "key"), BAD, ids=[f"{c.__name__}-{d}" for c, d, _ in BAD])
def test_a_value_out_of_bounds_is_refused_by_name(cls: type[Config], data: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        validate(cls, data, "test")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gamma": 0.1}, "gamma: is no parameter of npo_kl, which has only beta and kl_direction; leave it out"),
        ({"objective": "gradient_ascent", "beta": 0.1}, "beta: is no parameter of gradient_ascent, which has none"),
        ({"objective": "npo_grad_diff", "kl_direction": "policy_from_reference"}, "kl_direction: is no parameter of"),
        ({"objective": "simnpo", "coefficients": {"kl": 1.0}}, "simnpo has no loss 'kl', only simnpo and nll"),
        ({"preset": "paper", "objective": "simnpo", "kl_direction": "policy_from_reference"}, "kl_direction: is no"),
    ],
)
def test_what_the_objective_does_not_have_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(RecipeConfig, given, "test")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"objective": "per_step"}, "objective: per_step is written forget_unit: cot_step"),
        ({"preset": "reference", "objective": "per_word"}, "objective: per_word is written forget_unit: word"),
        ({"npo_coefficient": 2.0}, "npo_coefficient: .* write coefficients: {npo: …}"),
        ({"kl_coefficient": 2.0}, "kl_coefficient: .* write coefficients: {kl: …}"),
    ],
)
def test_an_earlier_spelling_names_the_key_of_today(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        validate(RecipeConfig, given, "test")
    assert "\n" not in str(caught.value)


def test_every_objective_has_its_usual_values_and_keeps_those_given() -> None:
    usual = {name: RecipeConfig(objective=name) for name in get_args(ObjectiveName)}
    assert {name: recipe.parameters for name, recipe in usual.items()} == {
        "npo_kl": {"beta": 0.1, "kl_direction": "policy_from_reference"},
        "npo_grad_diff": {"beta": 0.1},
        "gradient_ascent": {},
        "simnpo": {"beta": 2.5, "gamma": 0.0},
    }
    assert usual["gradient_ascent"].coefficients == {"ascent": 1.0, "nll": 0.0}
    given = RecipeConfig(objective="simnpo", beta=0.7, coefficients={"nll": 0.5})
    assert (given.parameters, given.coefficients) == ({"beta": 0.7, "gamma": 0.0}, {"simnpo": 1.0, "nll": 0.5})
    assert list(given.coefficients) == ["simnpo", "nll"]


def test_another_objective_beside_a_preset_keeps_what_the_preset_says_of_the_rest() -> None:
    recipe = RecipeConfig.model_validate({"preset": "reference", "objective": "npo_grad_diff"})
    reference = RecipeConfig.model_validate("reference")
    assert (recipe.parameters, recipe.coefficients) == ({"beta": 0.1}, {"npo": 1.0, "nll": 1.0})
    assert recipe.kl_direction is None
    assert (recipe.retain, recipe.eligible, recipe.method) == ("reference", reference.eligible, reference.method)
    same = RecipeConfig.model_validate({"preset": "reference", "objective": "npo_kl"})
    assert same == reference


def test_an_unknown_key_names_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'iterations'.*did you mean 'num_iterations'"):
        validate(RecipeConfig, {"iterations": 3}, "test")


@pytest.mark.parametrize(
    "recipe",
    [
        RecipeConfig(),
        RecipeConfig(method=LoraConfig(rank=32)),
        RecipeConfig(method=FullFF2Config(precision="bf16_pure")),
        *(RecipeConfig(objective=name) for name in get_args(ObjectiveName)),
    ],
    ids=["ff2", "lora", "bf16_pure", *get_args(ObjectiveName)],
)
def test_a_recipe_survives_being_written_and_read(recipe: RecipeConfig, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(recipe), encoding="utf-8")
    assert load_config(RecipeConfig, path) == recipe


def test_the_kind_chooses_the_method(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("method: {kind: lora, rank: 128}\n", encoding="utf-8")
    assert load_config(RecipeConfig, path).method == LoraConfig(rank=128)
    assert load_config(RecipeConfig, path, ["method.rank=8", "beta=1e-1"]).method == LoraConfig(rank=8)


def test_presets_are_the_columns_of_what_is_documented() -> None:
    default, paper, reference = (RecipeConfig.model_validate(name) for name in ("default", "paper", "reference"))
    assert default == RecipeConfig()
    differs = {name for name in RecipeConfig.model_fields if getattr(paper, name) != getattr(default, name)}
    assert differs == {"forget_unit"}
    assert paper.forget_unit == "word"
    differs = {name for name in RecipeConfig.model_fields if getattr(reference, name) != getattr(default, name)}
    assert differs == {"eligible", "retain", "kl_direction", "method"}
    assert (reference.eligible, reference.retain) == ("content_tokens", "reference")
    assert reference.kl_direction == "reference_from_policy"
    assert reference.method == FullFF2Config(precision="bf16_pure")
    assert set(PRESETS) == {"default", "paper", "reference"}


def test_a_key_beside_the_preset_takes_precedence_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("preset: reference\nbeta: 0.2\nmethod: {kind: lora, rank: 32}\n", encoding="utf-8")
    recipe = load_config(RecipeConfig, path, ["num_iterations=3"])
    assert (recipe.beta, recipe.num_iterations, recipe.method) == (0.2, 3, LoraConfig(rank=32))
    assert (recipe.retain, recipe.forget_unit) == ("reference", "cot_step")


def test_the_resolved_configuration_shows_values_not_the_presets_name(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "name: x\nmodels: [{model: m}]\ndata_sets: [{data_set: arc_challenge}]\nrates: [1e-5]\nrecipe: reference\n",
        encoding="utf-8",
    )
    config = load_config(FurSweepConfig, path)
    assert config.recipe == RecipeConfig.model_validate("reference")
    shown = parse_yaml(to_yaml(config))["recipe"]
    assert shown.keys() == RecipeConfig.model_fields.keys()
    assert shown["method"] == {"kind": "ff2", "precision": "bf16_pure"}
    path.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(FurSweepConfig, path) == config


@pytest.mark.parametrize("given", ["refrence", {"preset": "refrence"}], ids=["word", "key"])
def test_an_unknown_preset_names_its_neighbour(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'refrence'; did you mean 'reference'\? \(known are default"):
        validate(RecipeConfig, given, "test")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": None}, "unknown preset None"),
        ({"preset": ["paper"]}, "unknown preset"),
        ({"preset": "paper", "btea": 1}, "unknown key 'btea'; did you mean 'beta'"),
        ({"preset": "paper", "beta": -1}, "beta"),
        (["paper"], "config: "),
        (7, "config: "),
    ],
)
def test_a_preset_that_cannot_be_read_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(RecipeConfig, given, "test")


def test_editors_accept_a_presets_name_and_a_preset_beside_other_keys() -> None:
    schema = FurSweepConfig.model_json_schema()
    word, mapping = schema["$defs"]["RecipeConfig"]["anyOf"]
    assert word["enum"] == list(PRESETS) == mapping["properties"]["preset"]["enum"]
    assert mapping["properties"].keys() == {"preset", *RecipeConfig.model_fields}
    assert mapping["additionalProperties"] is False
