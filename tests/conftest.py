"""Fixtures for every test: tiny random models on disk and in memory, no hub, one thread, deterministic."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pytest

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import LanguageModel, load
from tests.helpers.tiny_models import save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that gives the folder of a tiny random model of an architecture, made once."""
    made: dict[str, Path] = {}

    def folder(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = save_tiny(tmp_path_factory.mktemp("models") / model_type, model_type)
        return made[model_type]

    return folder


@pytest.fixture(scope="session")
def tiny_lm(tiny_folder: Callable[[str], Path]) -> Callable[[str], LanguageModel]:
    """A function that gives a loaded tiny random model of an architecture, loaded once; do not change it."""
    loaded: dict[str, LanguageModel] = {}

    def language_model(model_type: str) -> LanguageModel:
        if model_type not in loaded:
            loaded[model_type] = load(ModelConfig(model=str(tiny_folder(model_type)), name=f"tiny-{model_type}"))
        return loaded[model_type]

    return language_model


@pytest.fixture(scope="session")
def tiny_llama(tiny_lm: Callable[[str], LanguageModel]) -> LanguageModel:
    """A loaded tiny random Llama; do not change it."""
    return tiny_lm("llama")


@pytest.fixture
def fresh_lm(tiny_folder: Callable[[str], Path]) -> Callable[[str], LanguageModel]:
    """A function that loads a tiny random model anew, for a test that changes its weights."""
    return lambda model_type: load(ModelConfig(model=str(tiny_folder(model_type)), name=f"tiny-{model_type}"))
