"""Several methods in one run: the same CoTs, rates of their own, rows that are told apart by method and rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwitness.chains.items import CotItem
from fairwitness.errors import ConfigError
from fairwitness.experiment.job import JobResult
from fairwitness.fur.finished import open_finished
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.sweep import summarise_cells
from fairwitness.text.numbers import method_name
from tests.helpers.sweeps import config_of, rows_of, run, script_cots, settings, watch_pools, write_problems

METHODS = [
    {"method": {"kind": "ff2"}, "rates": [1e-3]},
    {"method": {"kind": "lora", "rank": 2}, "rates": [1e-2, 1e-3]},
    {"method": {"kind": "lora", "rank": 4, "dropout": 0.0}, "rates": [1e-2]},
]
PLACES = {("ff2", None, 1e-3), ("lora", 2, 1e-2), ("lora", 2, 1e-3), ("lora", 4, 1e-2)}


def several(folder: Path, model: Path, **changes: Any) -> dict[str, Any]:
    data = folder / "animals.jsonl"
    if not data.exists():
        write_problems(data)
    plain = settings(folder / "results", model, data, **({"methods": METHODS} | changes))
    del plain["rates"]
    return plain


def test_each_method_is_a_study_on_the_same_scope(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    studies = prepare_studies(config_of(several(tmp_path, tiny_folder("llama"))), {})
    on = "tiny on animals"
    assert [study.label for study in studies] == [on, f"{on} (LoRA, rank 2)", f"{on} (LoRA, rank 4)"]
    assert [study.rates for study in studies] == [(1e-3,), (1e-2, 1e-3), (1e-2,)]
    assert [study.lora_rank for study in studies] == [None, 2, 4]
    assert len({study.scope_key for study in studies}) == 1
    assert len({study.cell_key(1e-3) for study in studies}) == 3


def test_cells_have_the_keys_of_the_simple_form(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    studies = prepare_studies(config_of(several(tmp_path, tiny_folder("llama"))), {})
    for study, one in zip(studies, METHODS, strict=True):
        recipe = {"recipe": {"method": one["method"]}, "rates": one["rates"]}
        plain = settings(tmp_path / "results", tiny_folder("llama"), tmp_path / "animals.jsonl", **recipe)
        (simple,) = prepare_studies(config_of(plain), {})
        assert [simple.cell_key(lr) for lr in simple.rates] == [study.cell_key(lr) for lr in study.rates]


def test_rates_of_a_model_within_a_method(tmp_path: Path) -> None:
    methods = [{**METHODS[0], "rates_by_model": {"tiny": [0.5]}}, METHODS[1]]
    config = config_of(several(tmp_path, tmp_path / "model", methods=methods))
    assert [part.rates_of(part.models[0]) for part in config.by_method()] == [(0.5,), (1e-2, 1e-3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": []}, "rates: is missing; give learning rates, or `methods`"),
        ({"rates": [1e-3]}, "`rates` and `methods` exclude one another"),
        ({"rates_by_model": {"tiny": [1e-3]}}, "`rates` and `methods` exclude one another"),
        ({"recipe": {"method": {"kind": "lora"}}}, "`recipe.method` and `methods` exclude one another"),
        ({"methods": [METHODS[1], METHODS[1]]}, "methods: LoRA, rank 2 is given twice"),
        ({"methods": [{"method": {"kind": "lora", "rank": 0}, "rates": [1e-3]}]}, "methods.0.method.*rank: "),
        ({"methods": [{"method": {"kind": "ff2"}, "rates": []}]}, "methods.0.rates: "),
        ({"methods": [{"method": {"kind": "ff2"}}]}, "methods.0.rates: is missing"),
        ({"methods": [{**METHODS[0], "rates_by_model": {"tinny": [1]}}]}, "'tinny' is no model of this run"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    plain = several(tmp_path, tmp_path / "model", **{k: v for k, v in changes.items() if k != "rates"})
    with pytest.raises(ConfigError, match=message):
        config_of({**plain, **({"rates": changes["rates"]} if "rates" in changes else {})})


def test_a_resolved_configuration_can_be_read_again(tmp_path: Path) -> None:
    config = config_of(several(tmp_path, tmp_path / "model"))
    assert config_of(config.model_dump(mode="json")) == config


def test_names_of_methods() -> None:
    assert (method_name("ff2", None), method_name("lora", 8)) == ("full FF2", "LoRA, rank 8")


@pytest.fixture
def swept(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], JobResult, list[Any]]:
    script_cots(monkeypatch, {})
    watch = watch_pools(monkeypatch)
    plain = several(tmp_path, tiny_folder("llama"))
    return plain, run(plain), watch.items


def test_one_run_measures_all_methods_on_the_same_cots(swept: tuple[dict[str, Any], JobResult, list[Any]]) -> None:
    plain, result, items = swept
    assert result.exit_code == 0
    assert result.num_models_loaded == 1
    assert sum(isinstance(item, CotItem) for item in items) == 1  # five CoTs, written once
    rows = rows_of(result)
    assert {(row["method"], row["lora_rank"], row["lr"]) for row in rows} == PLACES
    steps = {place: set() for place in PLACES}
    for row in rows:
        steps[row["method"], row["lora_rank"], row["lr"]].add((row["cot_key"], row["cot_step_index"]))
    assert len({frozenset(found) for found in steps.values()}) == 1

    before = len(items)
    assert run(plain).exit_code == 0
    assert not [item for item in items[before:] if not hasattr(item, "questions")]  # nothing is measured again
    assert len(rows_of(result)) == len(rows)


def test_a_finished_run_is_opened_method_by_method(swept: tuple[dict[str, Any], JobResult, list[Any]]) -> None:
    _, result, _ = swept
    found = open_finished(result.run, result.run.store(create=False), {})
    assert [(one.study.config.recipe.method.kind, one.study.lora_rank) for one in found] == [
        ("ff2", None),
        ("lora", 2),
        ("lora", 4),
    ]
    for one in found:
        assert {one.study.cell_key(lr) for lr in one.study.rates} == set(one.unlearning["cell_key"])
    assert found[0].records == found[1].records


def test_cells_are_named_with_their_rank(swept: tuple[dict[str, Any], JobResult, list[Any]]) -> None:
    _, result, _ = swept
    cells = summarise_cells(result.run.store(create=False))
    found = [(cell.params["method"], cell.params.get("lora_rank"), cell.params["lr"]) for cell in cells]
    assert found == [("ff2", None, 1e-3), ("lora", 2, 1e-3), ("lora", 2, 1e-2), ("lora", 4, 1e-2)]
    assert all(isinstance(cell.params["lora_rank"], int) for cell in cells[1:])
