"""Configuration of a sweep: contradictions are named before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import ConfigError
from fairwitness.fur.config import FurSweepConfig
from tests.helpers.sweeps import config_of, settings

TWO_MODELS = [{"model": "a/x"}, {"model": "b/y", "name": "second"}]


def make(**changes: Any) -> FurSweepConfig:
    return config_of(settings(Path("results"), Path("model"), Path("data.jsonl"), **changes))


def test_each_rate_is_used_once_in_its_order() -> None:
    config = make(rates=[1e-2, 1e-3, 0.01, 1e-3])
    assert config.rates_of(config.models[0]) == (1e-2, 1e-3)


def test_rates_of_a_model_of_its_own() -> None:
    config = make(models=TWO_MODELS, rates=[1e-3], rates_by_model={"second": [1e-4, 2e-4]})
    assert [config.rates_of(model) for model in config.models] == [(1e-3,), (1e-4, 2e-4)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": []}, "rates: "),
        ({"rates": [0]}, "rates.0: .*greater than 0"),
        ({"rates": [1e-3, -1e-3]}, "rates.1: .*greater than 0"),
        ({"rates": [11]}, "rates.0: .*less than or equal to 10"),
        ({"rates": [float("nan")]}, "rates.0: "),
        ({"rates": ["fast"]}, "rates.0: .*valid number"),
        ({"rates": 1e-3}, "rates: "),
        ({"rates_by_model": {"tiny": [0]}}, "rates_by_model.tiny.0: "),
        ({"rates_by_model": {"tinny": [1e-3]}}, "'tinny' is no model of this run"),
        ({"models": []}, "models: "),
        ({"models": [{"model": "a/x"}, {"model": "b/x"}]}, "two have the same name among x, x"),
        ({"data_sets": []}, "data_sets: "),
        ({"name": "../up"}, "name: "),
        ({"name": ""}, "name: "),
        ({"name": ".hidden"}, "name: "),
        ({"output": {"dir": ""}}, "output.dir: "),
        ({"seed": -1}, "seed: "),
        ({"min_specificity": 101}, "min_specificity: "),
        ({"recipe": {"num_iterations": 0}}, "recipe.num_iterations: "),
        ({"recipe": {"method": {"kind": "adapter"}}}, "recipe.method: .*'ff2', 'lora'"),
        ({"recipe": {"method": {"kind": "lora", "rnak": 3}}}, "'recipe.method.*rnak'; did you mean 'rank'"),
        ({"pool": {"num_gpus_per_actor": 1}}, "every model has device: cpu"),
        ({"pool": {"kind": "ray"}, "models": [{"model": "x", "device": "cuda"}]}, "pool.num_gpus_per_actor"),
        ({"pool": {"min_actors": 3, "max_actors": 2}}, r"max_actors \(2\) is below min_actors"),
        ({"cot": {"max_new_tokens": 0}}, "cot.max_new_tokens: "),
        ({"engine": {"group_size": 0}}, "engine.group_size: "),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_settings_stay_as_given() -> None:
    config = make()
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3  # type: ignore[misc]
    assert FurSweepConfig.model_validate(config.model_dump(mode="json")) == config
