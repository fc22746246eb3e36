"""Configuration of a search: what cannot be is named before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import ConfigError
from fairwitness.fur.config import FurSweepConfig
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.policies import BracketPolicy, GridPolicy
from tests.helpers.searches import search_config, search_settings
from tests.helpers.sweeps import config_of, settings


def make(**changes: Any) -> LrSearchConfig:
    plain = search_settings(Path("results"), Path("model"), Path("data.jsonl"))
    return search_config({**plain, **changes})


def bracket(*rates: float, **given: Any) -> dict[str, Any]:
    return {"search": {"kind": "bracket", "rates": list(rates), **given}}


def test_candidates() -> None:
    config = make(**bracket(1e-3, 1e-4, resolution=2))
    assert config.rates_of(config.models[0]) == (1e-4, 1.78e-4, 3.16e-4, 5.62e-4, 1e-3)
    plain = make(search={"kind": "grid", "rates": [1e-3, 1e-5, 1e-3]})
    assert plain.rates_of(plain.models[0]) == (1e-5, 1e-3)


def test_policies() -> None:
    config = make(**bracket(1e-4, 1e-3, max_concurrent=2), min_specificity=90)
    policy = config.search.policy(config.min_specificity)
    assert policy == BracketPolicy((1e-4, 1e-3), 90, 2)
    grid = make(search={"kind": "grid", "rates": [1e-3, 1e-5]})
    assert grid.search.policy(95) == GridPolicy((1e-5, 1e-3))


def test_batches() -> None:
    problems = list("abcde")
    config = make(**bracket(1e-4, 1e-3, batch_problems=2))
    assert config.search.batches(problems) == [["a", "b"], ["c", "d"], ["e"]]
    assert make(search={"kind": "grid", "rates": [1e-3, 1e-5]}).search.batches(problems) == [problems]
    assert config.search.batches([]) == []


def test_search_of_a_model_of_its_own() -> None:
    own = {"kind": "grid", "rates": [1e-6, 1e-5]}
    config = make(models=[{"model": "a/x"}, {"model": "b/y", "name": "second"}], search_by_model={"second": own})
    assert [config.search_of(model).kind for model in config.models] == ["bracket", "grid"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (bracket(1e-3), "search.bracket.rates: .*there is nothing to choose among fewer than two rates"),
        (bracket(1e-3, 1e-3), "there is nothing to choose among fewer than two rates; give more, or measure one with"),
        ({"search": {"kind": "grid", "rates": [1e-3]}}, "search.grid.rates: .*nothing to choose"),
        ({"search": {"kind": "grid", "rates": []}}, "nothing to choose"),
        ({"search": {"kind": "grid", "rates": [1e-3, 0]}}, "search.grid.rates.1: .*greater than 0"),
        ({"search": {"kind": "random", "rates": [1e-3, 1e-2]}}, "search: .*'grid', 'bracket'"),
        (bracket(1e-3, 1e-2, resolution=1), "search.bracket.resolution: "),
        (bracket(1e-3, 1e-2, batch_problems=0), "search.bracket.batch_problems: "),
        ({"search_by_model": {"tinny": {"kind": "grid", "rates": [1, 2]}}}, "search_by_model: 'tinny' is no model"),
        ({"min_problems": 0}, "min_problems: "),
        ({"min_specificity": 100.5}, "min_specificity: "),
        ({"rates": [1e-3, 1e-2]}, "unknown key 'rates'"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_settings_read_again_are_the_same() -> None:
    config = make()
    assert LrSearchConfig.model_validate(config.model_dump(mode="json")) == config


def sweep(**changes: Any) -> FurSweepConfig:
    plain = settings(Path("results"), Path("model"), Path("data.jsonl"))
    del plain["rates"]
    return config_of({**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": "selected"}, "`lr: selected` and `lr_search: <directory of a search>` belong together"),
        ({"lr_search": "results/search", "rates": [1e-3]}, "belong together"),
        ({"lr": "selected", "lr_search": "s", "rates": [1e-3]}, "takes the place of `rates`"),
        ({"lr": "selected", "lr_search": "s", "rates_by_model": {"tiny": [1e-3]}}, "takes the place of `rates`"),
        ({"lr": "selected", "lr_search": "s", "methods": [{"method": {"kind": "ff2"}, "rates": [1]}]}, "the place of"),
        ({"lr": 1e-3, "lr_search": "s"}, "lr: .*'selected'"),
        ({}, "rates: is missing"),
    ],
)
def test_selected_rate_in_a_sweep(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(**changes)


def test_selected_rate_stands_alone() -> None:
    assert sweep(lr="selected", lr_search="results/search").rates == ()
