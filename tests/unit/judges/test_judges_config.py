"""Settings of judges: what is refused, and that no key or credential is ever shown or written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairwitness.config import Config, load_config, to_yaml, validate
from fairwitness.errors import ConfigError
from fairwitness.judges.config import EndpointConfig, JudgeConfig
from fairwitness.judges.factory import check_usable, make_chat_model
from fairwitness.records.run_dir import RunDirectory

SECRET = "sk-abc0123456789"


class Job(Config):
    judge: JudgeConfig


def job(**judge: Any) -> Job:
    return validate(Job, {"judge": judge}, "job.yaml")


def openai(**changes: Any) -> EndpointConfig:
    judge = job(kind="openai", model="org/m", **changes).judge
    assert isinstance(judge, EndpointConfig)
    return judge


def test_kinds_are_told_apart() -> None:
    assert openai().shown_name == "m"
    assert job(kind="rules").judge.shown_name == "rules (stated)"
    assert job(kind="local", model={"model": "a/b"}, name="mine").judge.shown_name == "mine"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"https://user:{SECRET}@host/v1", "must hold no credentials"),
        (f"https://{SECRET}@host/v1", "must hold no credentials"),
        (f"https://host/v1?api_key={SECRET}", "must hold no credentials"),
        (f"https://host/v1#{SECRET}", "must hold no credentials"),
        ("host/v1", "must be an address"),
        ("ftp://host/v1", "must be an address"),
        ("https://", "must be an address"),
        ("http://host:port/v1", "must be an address"),
        ("http://[half/v1", "must be an address"),
    ],
)
def test_addresses_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as info:
        openai(base_url=url)
    assert "judge.openai.base_url" in str(info.value)
    if "#" not in url:
        assert SECRET not in str(info.value)


@pytest.mark.parametrize(
    "judge",
    [
        {"kind": "openai", "model": "m", "api_key_env": SECRET},
        {"kind": "openai", "model": "m", "api_key": SECRET},
        {"model": "m", "api_key": SECRET},
        {"kind": "opena", "model": "m", "api_key": SECRET},
        {"kind": "openai", "model": "m", "max_cost": 1, "base_url": f"https://h/v1?key={SECRET}"},
    ],
)
def test_a_key_in_the_configuration_is_refused_and_not_repeated(judge: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as info:
        job(**judge)
    assert SECRET not in str(info.value)


def test_max_cost_needs_prices() -> None:
    with pytest.raises(ConfigError, match="max_cost needs price_per_million"):
        openai(max_cost=1)
    assert openai(max_cost=1, price_per_million_prompt_tokens=0.15).max_cost == 1


def test_the_written_configuration_reads_back_and_names_the_variable(tmp_path: Path) -> None:
    config = job(kind="openai", model="m", api_key_env="MY_KEY")
    run = RunDirectory(tmp_path, "run")
    path = run.write_config(config, "fur_judge")
    assert load_config(Job, path) == config
    assert "MY_KEY" in path.read_text()
    assert validate(Job, {"judge": config.judge.model_dump()}, "x") == config
    assert "api_key_env: MY_KEY" in to_yaml(config)


def test_rules_write_no_text(tmp_path: Path) -> None:
    judge = job(kind="rules").judge
    with (
        pytest.raises(ConfigError, match="rules write no text; set kind: openai or kind: local"),
        make_chat_model(judge, cache_dir=tmp_path, pool=None),
    ):
        pass


def test_a_missing_key_is_found_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds no key"):
        check_usable(openai())
    with (
        pytest.raises(ConfigError, match="OPENAI_API_KEY holds no key"),
        make_chat_model(openai(), cache_dir=tmp_path, pool=None),
    ):
        pass
    check_usable(openai(api_key_env=None))
