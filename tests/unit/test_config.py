"""Configuration: YAML with numbers as people write them, unknown keys named, overrides, bounds, fingerprints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from fairwitness.config import Config, fingerprint, load_config, parse_yaml, to_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.fur.config import FurSweepConfig
from tests.helpers.sweeps import config_of, settings

SWEEP = """
name: small
models: [{model: somewhere}]
data_sets: [{data_set: strategyqa, path: here.jsonl}]
rates: [1e-3]
"""


class Inner(Config):
    """A nested configuration."""

    depth: int = Field(1, ge=1)


class Outer(Config):
    """A configuration with everything that a job's has."""

    rate: float = Field(1.0, gt=0)
    flag: bool = False
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    rates: tuple[float, ...] = ()


def load(tmp_path: Path, text: str, *overrides: str, cls: type[Config] = Outer) -> Any:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(cls, path, overrides)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-5", 2e-5),
        ("2E-5", 2e-5),
        ("1e3", 1000.0),
        ("1_0e2", 1000.0),
        ("2.5e-5", 2.5e-5),
        (".5e1", 5.0),
        ("-1e2", -100.0),
    ],
)
def test_exponents_are_numbers(text: str, value: float) -> None:
    assert parse_yaml(f"rate: {text}") == {"rate": value}
    assert isinstance(parse_yaml(text), float)


@pytest.mark.parametrize("text", ["e5", ".e5", "-e5", "+.e5", "1e", "1e-", "1e5x", "e-5"])
def test_words_that_look_like_exponents_are_text(text: str) -> None:
    assert parse_yaml(f"name: {text}") == {"name": text}


@pytest.mark.parametrize("text", ["2e-5", '"2e-5"', "'0.00002'", "0.00002"])
def test_a_rate_is_a_number_however_it_is_written(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, f"rate: {text}\nrates: [{text}]")
    assert found.rate == 2e-5
    assert found.rates == (2e-5,)


@pytest.mark.parametrize("text", ["fast", "2e-5 # one", '"2e-5 per step"', "two", "[1]", "null"])
def test_a_rate_that_is_no_number_is_named(tmp_path: Path, text: str) -> None:
    if text.endswith("# one"):
        assert load(tmp_path, f"rate: {text}").rate == 2e-5
        return
    with pytest.raises(ConfigError, match=r"job\.yaml: rate: .*number") as caught:
        load(tmp_path, f"rate: {text}")
    assert "given:" in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1e-5", ".nan", ".inf", "-.inf"])
def test_a_rate_out_of_bounds_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.yaml: rate: "):
        load(tmp_path, f"rate: {text}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rtae: 1", r"unknown key 'rtae'; did you mean 'rate'\?"),
        ("inner: {dpeth: 1}", r"unknown key 'inner.dpeth'; did you mean 'depth'\?"),
        ("items: [{depth: 1}, {depht: 2}]", r"unknown key 'items.1.depht'; did you mean 'depth'\?"),
        ("qqqqqq: 1", r"unknown key 'qqqqqq'$"),
        ("1: 1", "1: Keys should be strings"),
    ],
)
def test_unknown_key_names_the_nearest(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("data: [{data_set: strategyqa}]", "unknown key 'data'; did you mean 'data_sets'?"),
        ("model: [somewhere]", "unknown key 'model'; did you mean 'models'?"),
        ("rate: 1", "unknown key 'rate'; did you mean 'rates'?"),
        ("output_dir: x", "unknown key 'output_dir'; did you mean 'output'?"),
        ("recipe: {method: {kind: lora, rnak: 2}}", "unknown key 'recipe.method.lora.rnak'; did you mean 'rank'?"),
        # `precision` is a key of another kind of method, `hub_id` one of another level.
        ("recipe: {method: {kind: lora, precisio: x}}", "unknown key 'recipe.method.lora.precisio'"),
        ("hub_id: 1", "unknown key 'hub_id'"),
    ],
)
def test_the_hint_is_a_key_of_the_same_level(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, cls=FurSweepConfig)
    lines = str(caught.value).splitlines()
    assert f"{tmp_path / 'job.yaml'}: {hint}" in lines


def test_every_refused_value_has_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "rate: -1\ninner: {depth: 0}\nrtae: 2")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(str(tmp_path / "job.yaml")) for line in lines)


def test_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name: is missing; add it"):
        load(tmp_path, "rates: [1]", cls=FurSweepConfig)


@pytest.mark.parametrize(("text", "line"), [("rate: 1\nflag: true\nrate: 2", 3), ("inner:\n  depth: 1\n  depth: 2", 3)])
def test_key_given_twice(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"job\.yaml: key '\w+' is given twice \(line {line}\)"):
        load(tmp_path, text)


@pytest.mark.parametrize("text", ["- 1\n- 2", "[]", "just words", "0", "false"])
def test_yaml_that_is_no_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.yaml: must hold `key: value` lines, not a \w+"):
        load(tmp_path, text)


@pytest.mark.parametrize("text", ["rate: [1", "a: b: c", "\tx: 1", "? [a]\n: 1", "{[a, b]: 1}"])
def test_text_that_is_no_yaml(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.yaml: not valid YAML"):
        load(tmp_path, text)


@pytest.mark.parametrize("value", ["2026-99-99", "9" * 5000, "[" * 3000])
def test_yaml_that_python_cannot_hold(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.yaml: not valid YAML: "):
        load(tmp_path, f"rate: {value}")


@pytest.mark.parametrize(("text", "key"), [("rate: yes", "rate"), ("rates: [1.0, true]", r"rates\.1")])
def test_a_switch_is_no_number(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"job\.yaml: {key}: must be a number, not yes or no"):
        load(tmp_path, f"flag: true\n{text}")


def test_a_rule_of_several_settings_shows_no_others(tmp_path: Path) -> None:
    secret = "tracking: {uri: 'http://someone:hunter2@host/?token=hunter2'}"
    models = "models: [{model: a/same}, {model: b/same}]"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{SWEEP.replace('models: [{model: somewhere}]', models)}\n{secret}", cls=FurSweepConfig)
    assert str(caught.value) == (
        f"{tmp_path / 'job.yaml'}: config: models: two have the same name among same, same; give each a `name`"
    )
    for override in ("tracking.uri=http://someone:hunter2@host: {", "tracking.uri={x: http://host?api_key=hunter2"):
        with pytest.raises(ConfigError, match="not valid YAML") as caught:
            load(tmp_path, SWEEP, override, cls=FurSweepConfig)
        assert "hunter2" not in str(caught.value)


def test_a_list_with_a_refused_item_is_not_called_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, SWEEP.replace("[1e-3]", "[0]"), cls=FurSweepConfig)
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'job.yaml'}: rates.0: Input should be greater than 0 (given: 0)"
    ]
    with pytest.raises(ConfigError, match="models: Tuple should have at least 1 item"):
        load(tmp_path, SWEEP.replace("[{model: somewhere}]", "[]"), cls=FurSweepConfig)


def test_a_kind_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.method: 'kind' is missing; add it"):
        load(tmp_path, SWEEP, "recipe.method.rank=8", cls=FurSweepConfig)


def test_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing\n") == Outer()


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"{path}: cannot be read"):
            load_config(Outer, path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(ConfigError, match=r"latin\.yaml: cannot be read"):
        load_config(Outer, tmp_path / "latin.yaml")


def test_overrides(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "items: [{depth: 1}, {depth: 2}]\nrates: [1, 2]",
        "items.1.depth=7",
        "inner.depth=3",
        "rate=2e-5",
        "rates=[1e-3, 3e-3]",
        "rates.0=5e-4",
        "flag=true",
    )
    assert [item.depth for item in found.items] == [1, 7]
    assert (found.inner.depth, found.rate, found.flag) == (3, 2e-5, True)
    assert found.rates == (5e-4, 3e-3)


def test_overrides_on_a_real_job(tmp_path: Path) -> None:
    found = load(tmp_path, SWEEP, "data_sets.0.num_problems=3", "pool.kind=local", cls=FurSweepConfig)
    assert found.data_sets[0].num_problems == 3
    assert found.pool.kind == "local"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rate", "write it as key=value"),
        ("=3", "write it as key=value"),
        ("rate.deep=3", "'rate' is a single value"),
        ("items.0.depth.deeper=3", "'depth' is a single value"),
        ("rates.0.deep=3", "'0' is a single value"),
        ("items.4.depth=3", "'4' must be a number from 0 to 0"),
        ("items.first.depth=3", "'first' must be a number"),
        ("items.².depth=3", "'²' must be a number"),
        ("rates.9=3", "'9' must be a number from 0 to 0"),
        ("rate=[1", "not valid YAML"),
        ("inner={depth: 1, depth: 2}", "given twice"),
    ],
)
def test_override_that_cannot_be_applied_is_named(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "rate: 1\nitems: [{depth: 1}]\nrates: [1]", override)
    assert message in str(caught.value)
    assert f"--set {override}" in str(caught.value)


def test_override_of_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'inner.dept'; did you mean 'depth'\?"):
        load(tmp_path, "rate: 1", "inner.dept=3")


def test_configuration_is_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Outer().rate = 3.0  # type: ignore[misc]


def test_resolved_configuration_reads_back_equal(tmp_path: Path) -> None:
    plain = settings(
        tmp_path, tmp_path / "m", tmp_path / "d.jsonl", rates=[2e-5, 1e-3], recipe={"method": {"kind": "lora"}}
    )
    config = config_of(plain)
    text = to_yaml(config)
    assert load(tmp_path, text, cls=FurSweepConfig) == config
    assert fingerprint(load(tmp_path, text, cls=FurSweepConfig)) == fingerprint(config)


def test_fingerprint_depends_on_content_only() -> None:
    assert fingerprint({"a": 1, "b": [1.5, "ü"]}) == fingerprint({"b": [1.5, "ü"], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint([1, 2]) != fingerprint([2, 1])
    assert fingerprint(Outer()) == fingerprint(Outer().model_dump(mode="json"))
    assert fingerprint(Outer(rate=2.0)) != fingerprint(Outer())


def test_fingerprint_is_the_same_in_another_process() -> None:
    code = "from fairwitness.config import fingerprint; print(fingerprint({'b': 2e-5, 'a': ['x']}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == fingerprint({"a": ["x"], "b": 2e-5})


def test_validate_names_its_source() -> None:
    with pytest.raises(ConfigError, match=r"^here: rate: "):
        validate(Outer, {"rate": -1}, "here")
