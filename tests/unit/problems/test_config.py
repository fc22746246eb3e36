"""The configuration refuses contradictions before anything is read."""

import re
from pathlib import Path

import pytest

from fairwitness.config import parse_yaml, to_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.problems.config import DataConfig, FieldMap
from fairwitness.problems.load import DEFINITIONS


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


def test_the_examples_of_the_guide_are_valid() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "problems.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", guide, flags=re.DOTALL)
    assert len(examples) >= 3
    for example in examples:
        # As in a job's file, so that one can be copied there.
        for entry in parse_yaml(example)["data_sets"]:
            validate(DataConfig, entry, "guide")
    for name in (*DEFINITIONS, *FieldMap.model_fields):
        assert f"| `{name}` |" in guide


def test_a_written_config_reads_back_equal() -> None:
    config = DataConfig(data_set="mmlu", path="mmlu", subjects=("anatomy",), num_problems=3)
    assert validate(DataConfig, parse_yaml(to_yaml(config)), "again") == config
