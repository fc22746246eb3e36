"""Loading as a whole: names, revisions, empty and unknown sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairwitness.errors import DataError
from fairwitness.problems.config import DataConfig, FieldMap
from fairwitness.problems.load import load_problems

ROWS: list[dict[str, Any]] = [
    {"question": "Is snow white?", "choices": ["Yes", "No"], "answer": "A"},
    {"question": "", "choices": ["Yes", "No"], "answer": "A"},
    {"question": "Is coal white?", "choices": ["Yes", "No"], "answer": "B"},
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "weather.jsonl"
    file.write_text("{broken\n" + "\n".join(map(json.dumps, ROWS)))
    return str(file)


def revision(path: str, seed: int = 0, **changes: Any) -> str:
    return load_problems(DataConfig(data_set="local", path=path, **changes), seed=seed).data_revision


def test_good_records_are_read_and_bad_ones_counted(path: str) -> None:
    loaded = load_problems(DataConfig(data_set="local", path=path, split="dev"), seed=0)
    assert (loaded.name, loaded.split) == ("weather", "dev")
    assert [problem.gold for problem in loaded.problems] == ["A", "B"]
    assert [(item.line, item.field) for item in loaded.refused] == [(1, ""), (3, "question")]


def test_the_revision_follows_content_and_reading_but_not_the_seed(path: str) -> None:
    first = revision(path)
    assert revision(path, seed=9) == first
    assert revision(path, fields=FieldMap(gold=None)) != first
    assert revision(path, name="other", num_problems=1) == first
    with open(path, "a") as file:
        file.write("\n")
    assert revision(path) != first


def test_a_shuffled_set_has_a_revision_per_seed(path: str) -> None:
    assert revision(path, seed=1, shuffle_choices=True) != revision(path, seed=2, shuffle_choices=True)


def test_an_unknown_set_names_the_nearest(path: str) -> None:
    with pytest.raises(DataError, match="did you mean 'arc_challenge'"):
        load_problems(DataConfig(data_set="arc-challenge", path=path), seed=0)
    with pytest.raises(DataError, match=r"did you mean 'elsewhere'\? Known are .*, elsewhere, local, hub"):
        load_problems(DataConfig(data_set="elsewere", path=path), seed=0, others=["elsewhere"])


def test_a_set_without_records_or_without_good_ones_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text("\n")
    config = DataConfig(data_set="local", path=str(file))
    with pytest.raises(DataError, match="holds no records"):
        load_problems(config, seed=0)
    file.write_text(json.dumps(ROWS[1]) + "\n{broken")
    with pytest.raises(DataError, match=r"all 2 records were refused.*set\.jsonl:"):
        load_problems(config, seed=0)
    file.write_text("{broken")
    with pytest.raises(DataError, match=r"all 1 records were refused"):
        load_problems(config, seed=0)


def test_a_ready_definition_on_a_file_of_another_shape_is_an_error(path: str) -> None:
    with pytest.raises(DataError, match=r"weather\.jsonl: no record has the field 'qid'"):
        load_problems(DataConfig(data_set="strategyqa", path=path), seed=0)
