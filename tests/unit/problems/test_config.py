"""The configuration refuses contradictions before anything is read."""

import pytest

from fairwitness.config import to_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.problems.config import DataConfig


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"data_set": "local"}, "needs `path`"),
        ({"data_set": "hub"}, "needs `hub_id`"),
        ({"data_set": "mmlu", "path": "x.csv", "hub_id": "a/b"}, "exclude one another"),
        ({"data_set": "arc_challenge", "subjects": ["anatomy"]}, "mmlu` only"),
        ({"data_set": "local", "path": "x", "encoding": "utf-99"}, "encoding 'utf-99' is unknown"),
        ({"data_set": "arc_challenge", "num_problems": 0}, "num_problems"),
        ({"data_set": "arc_challenge", "num_held_out": 0}, "num_held_out"),
        ({"data_set": "arc_challenge", "num_problem": 3}, "did you mean 'num_problems'"),
        ({"data_set": "local", "path": "x", "fields": {"fixed_choices": ["a", "b"]}}, "either `choices` or"),
        ({"data_set": "local", "path": "x", "fields": {"choices": None}}, "either `choices` or"),
        ({"data_set": "local", "path": "x", "fields": {"gold_kind": "number"}}, "fields.gold_kind"),
    ],
)
def test_contradictions_are_named(data: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        validate(DataConfig, data, "test.yaml")


def test_columns_lists_every_field_that_must_be_there() -> None:
    data = {"id": "n", "question": "q", "choices": ["a", "b"], "gold": "g", "metadata": ["m"]}
    config = validate(DataConfig, {"data_set": "local", "path": "x", "fields": data}, "test")
    assert config.fields is not None
    assert config.fields.columns == ("n", "q", "a", "b", "g", "m")


def test_a_written_config_reads_back_equal() -> None:
    import yaml

    config = DataConfig(data_set="mmlu", path="mmlu", subjects=("anatomy",), num_problems=3)
    assert validate(DataConfig, yaml.safe_load(to_yaml(config)), "again") == config
