"""From a job's settings to its baselines: opens the sources of texts and names each baseline by a key."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from fairwitness.fleet.config import PoolConfig
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.followups.baselines.config import (
    AddMistakeConfig,
    BaselineConfig,
    CcShapConfig,
    FileTexts,
    JudgeTexts,
    ParaphraseConfig,
    RuleTexts,
    Texts,
)
from fairwitness.followups.baselines.file_writer import FileWriter
from fairwitness.followups.baselines.plan import PURPOSES, Baseline
from fairwitness.followups.baselines.writers import Ask, JudgeWriter, Purpose, Rule, StepWriter, rule_writer
from fairwitness.fur.study import FurStudy
from fairwitness.judges.config import JudgeConfig, LocalModelConfig
from fairwitness.judges.factory import make_chat_model
from fairwitness.judges.protocol import ChatModel
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of

log = logging.getLogger(__name__)


class Workers:
    """The pool and the chat models of a job, each opened when it is first asked for and closed with the stack."""

    def __init__(self, stack: ExitStack, pool: PoolConfig, cache_dir: Path) -> None:
        self._stack, self._settings, self._cache_dir = stack, pool, cache_dir
        self._pool: Pool | None = None
        self._models: dict[str, ChatModel] = {}

    @property
    def num_models_loaded(self) -> int:
        """How many engines the pool has built."""
        return 0 if self._pool is None else self._pool.num_builds

    def pool(self) -> Pool:
        """The pool.

        Raises:
            ResourceError: See `make_pool`.
        """
        if self._pool is None:
            self._pool = self._stack.enter_context(make_pool(self._settings))
        return self._pool

    def chat_model(self, config: JudgeConfig) -> ChatModel:
        """The model of a configuration; equal configurations share one, with its budget.

        Raises:
            ConfigError, ModelError: See `make_chat_model`.
        """
        name = config.model_dump_json()
        if name not in self._models:
            pool = self.pool() if isinstance(config, LocalModelConfig) else None
            model = make_chat_model(config, cache_dir=self._cache_dir, pool=pool)
            self._models[name] = self._stack.enter_context(model)
        return self._models[name]


BASELINES_CODE = ("fairwitness.followups.baselines.plan",)
"""The module whose code, with all that it imports, decides what a baseline gives."""


def make_baselines(
    configs: Sequence[BaselineConfig], studies: Sequence[FurStudy], rules: Mapping[str, Rule], ask: Ask
) -> list[Baseline]:
    """The baselines of a job. Files are read and models looked at; none is loaded or asked.

    Args:
        configs: Their settings.
        studies: The run's studies.
        rules: Rules that write texts, by name.
        ask: Opens a model that writes texts.

    Raises:
        ConfigError, DataError, ModelError: A source cannot be used.
    """
    return [_baseline(config, studies, rules, ask) for config in configs]


def _baseline(config: BaselineConfig, studies: Sequence[FurStudy], rules: Mapping[str, Rule], ask: Ask) -> Baseline:
    writer: StepWriter | None = None
    if isinstance(config, AddMistakeConfig | ParaphraseConfig):
        writer = _writer(config.texts, PURPOSES[config.kind], studies, rules, ask)
    settings = config.model_dump(mode="json", exclude={"texts"})
    library = version("shap") if isinstance(config, CcShapConfig) else None
    key = key_of(settings=settings, texts=writer and writer.key, library=library, code=code_revision(*BASELINES_CODE))
    return Baseline(config, key, writer)


def _writer(
    texts: Texts, purpose: Purpose, studies: Sequence[FurStudy], rules: Mapping[str, Rule], ask: Ask
) -> StepWriter:
    match texts:
        case FileTexts():
            return _file_writer(texts, studies)
        case JudgeTexts():
            return JudgeWriter(texts, purpose, ask)
        case RuleTexts():
            return rule_writer(texts.name, rules)


def _file_writer(texts: FileTexts, studies: Sequence[FurStudy]) -> FileWriter:
    writer = FileWriter(texts, studies)
    if writer.ignored:
        number = len(writer.ignored)
        log.warning("%s: %d lines about problems that are not in the run are passed over", texts.path, number)
    return writer
