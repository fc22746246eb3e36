"""Studies: keys name all that results depend on, nothing else; what cannot be used is refused before a model loads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import ConfigError, DataError, ModelError
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study import FurStudy
from fairwitness.problems.config import DataConfig
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems
from tests.helpers.studies import make_study
from tests.helpers.sweeps import config_of, problem, settings, write_problems
from tests.helpers.tiny_models import save_tiny


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Callable[..., FurStudy]:
    def one(model: Path | None = None, **changes: Any) -> FurStudy:
        return make_study(tmp_path_factory.mktemp("study"), model or tiny_folder("llama"), **changes)

    return one


@pytest.fixture(scope="module")
def usual(make: Callable[..., FurStudy]) -> FurStudy:
    return make()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"cot": {"max_new_tokens": 25}},
        {"models": {"dtype": "bfloat16"}},
        {"models": {"prompt_style": "chat"}},
        {"models": {"attention": "eager"}},
    ],
)
def test_what_changes_base_measurements_changes_the_scope(
    make: Callable[..., FurStudy], usual: FurStudy, tiny_folder: Callable[[str], Path], changes: dict[str, Any]
) -> None:
    if "models" in changes:
        changes = {"models": [{"model": str(tiny_folder("llama")), "name": "tiny", **changes["models"]}]}
    assert make(**changes).scope_key != usual.scope_key


def test_other_weights_change_the_scope(make: Callable[..., FurStudy], usual: FurStudy, tmp_path: Path) -> None:
    assert make(save_tiny(tmp_path / "model", seed=1)).scope_key != usual.scope_key


def test_only_the_changed_question_has_another_key(
    usual: FurStudy, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    records = [problem(n) for n in range(9)]
    records[3]["choices"] = ["red fox", "grey owl", "brown bear", "green toad"]
    plain = settings(tmp_path, tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl", records))
    (other,) = prepare_studies(config_of(plain), {})
    assert other.scope_key == usual.scope_key
    before, after = ({p.problem_id: study.cot_key(p) for p in study.data.loaded.problems} for study in (usual, other))
    (changed,) = (name for name in before if before[name] != after[name])
    assert {p.problem_id: list(p.choices) for p in other.data.loaded.problems}[changed] == records[3]["choices"]


def test_more_problems_keep_the_keys_of_the_first_ones(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path, tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))

    def with_problems(number: int) -> FurStudy:
        (study,) = prepare_studies(
            config_of({**plain, "data_sets": [{**plain["data_sets"][0], "num_problems": number}]}), {}
        )
        return study

    few, more = with_problems(2), with_problems(4)
    assert few.cell_key(1e-3) == more.cell_key(1e-3)
    keys = [{study.cot_key(p) for p in study.data.selection.measured} for study in (few, more)]
    assert [len(one) for one in keys] == [2, 4]
    assert keys[0] < keys[1]


def test_other_held_out_questions_change_the_cells_alone(make: Callable[..., FurStudy], usual: FurStudy) -> None:
    other = make(num_held_out=3)
    assert other.scope_key == usual.scope_key
    assert other.cell_key(1e-3) != usual.cell_key(1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"engine": {"group_size": 1, "max_tokens": 100}},
        {"pool": {"kind": "ray", "max_actors": 4}},
        {"tracking": {"enabled": True, "experiment": "other"}},
        {"min_specificity": 90},
        {"rates": [0.5]},
        {"recipe": {"beta": 0.2}},
    ],
)
def test_how_a_run_is_done_does_not_change_the_scope(
    make: Callable[..., FurStudy], usual: FurStudy, changes: dict[str, Any]
) -> None:
    assert make(**changes).scope_key == usual.scope_key


def test_copies_of_model_and_data_have_the_same_keys(
    make: Callable[..., FurStudy], usual: FurStudy, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    copy = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    assert make(copy).cell_key(1e-3) == usual.cell_key(1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": {"beta": 0.2}},
        {"recipe": {"num_retain": 3}},
        {"recipe": {"method": {"kind": "lora"}}},
        {"recipe": {"method": {"kind": "ff2", "precision": "bf16_pure"}}},
        {"measure": {"cot_after": True}},
        {"measure": {"disagreeing": False}},
    ],
)
def test_what_changes_tasks_changes_the_cell_only(
    make: Callable[..., FurStudy], usual: FurStudy, changes: dict[str, Any]
) -> None:
    other = make(**changes)
    assert other.cell_key(1e-3) != usual.cell_key(1e-3)
    assert other.scope_key == usual.scope_key


def test_cells_of_rates_differ(usual: FurStudy) -> None:
    assert len({usual.cell_key(lr) for lr in (1e-3, 2e-3, 1e-2)}) == 3
    assert usual.rates == (1e-3, 1e-2)
    assert usual.label == "tiny on animals"


def test_every_model_meets_every_data_set(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path, tiny_folder("llama"), write_problems(tmp_path / "a.jsonl"))
    plain["models"] += [{"model": str(tiny_folder("gpt2")), "name": "other"}]
    plain["data_sets"] += [{**plain["data_sets"][0], "path": str(write_problems(tmp_path / "b.jsonl"))}]
    studies = prepare_studies(config_of(plain), {})
    # Studies of one model come one after another, so that each model is loaded once.
    assert [s.label for s in studies] == ["tiny on a", "tiny on b", "other on a", "other on b"]
    assert len({s.scope_key for s in studies}) == 4


def test_one_model_under_two_names(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path, tiny_folder("llama"), write_problems(tmp_path / "set.jsonl"))
    (model,) = plain["models"]
    config = config_of({**plain, "models": [{**model, "name": "a"}, {**model, "name": "b"}]})
    with pytest.raises(ConfigError, match="models: a and b are one model with the same settings; keep one"):
        prepare_studies(config, {})
    other = {**model, "name": "b", "dtype": "bfloat16"}
    assert len(prepare_studies(config_of({**plain, "models": [{**model, "name": "a"}, other]}), {})) == 2


def test_two_data_sets_of_one_name(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path, tiny_folder("llama"), write_problems(tmp_path / "a.jsonl"))
    plain["data_sets"] *= 2
    with pytest.raises(DataError, match="two have the same name among a, a; give each a `name`"):
        prepare_studies(config_of(plain), {})


def test_data_set_of_a_loader(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    plain = settings(tmp_path, tiny_folder("llama"), tmp_path / "unused", seed=7)
    plain["data_sets"] = [{"data_set": "made_up", "num_problems": 2, "num_held_out": 1}]
    seen: list[tuple[str, int]] = []

    def load(config: DataConfig, seed: int) -> LoadedProblems:
        seen.append((config.data_set, seed))
        problems = tuple(Problem(f"q{n}", f"Which {n}?", ("x", "y"), "A", "made_up") for n in range(4))
        return LoadedProblems("made_up", "", problems, (), "r1")

    (study,) = prepare_studies(config_of(plain), {"made_up": load})
    assert seen == [("made_up", 7)]
    assert len(study.data.selection.measured) == 2


def test_missing_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plain = settings(tmp_path, tmp_path / "absent", write_problems(tmp_path / "a.jsonl"))
    with pytest.raises(ModelError, match="absent"):
        prepare_studies(config_of(plain), {})
