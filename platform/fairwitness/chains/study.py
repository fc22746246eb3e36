"""A study: one model on one data set under a run's settings, and the keys of what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairwitness.chains.config import ChainsConfig
from fairwitness.experiment.config import RunConfig
from fairwitness.experiment.data_set import DataSet, Loader, prepare_data_sets
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.tokens import PromptEncoder
from fairwitness.problems.problem import Problem
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.text.content_words import tagger_revision
from fairwitness.text.segmentation import segmenter_revision

CHAINS_CODE = ("fairwitness.chains.cots",)
"""The module whose code, with all that it imports, decides what a CoT, an answer and a step are."""


@dataclass(frozen=True, eq=False)
class Study:
    """One model on one data set.

    Attributes:
        scope_key: Hash of everything but the problem that what the base model writes depends on.
    """

    config: RunConfig
    model: ModelConfig
    facts: ModelFacts
    data: DataSet
    scope_key: str

    @property
    def label(self) -> str:
        """Model and data set, for people."""
        return f"{self.facts.name} on {self.data.loaded.name}"

    @property
    def columns(self) -> dict[str, str]:
        """The columns that every row of the study has."""
        return {"scope_key": self.scope_key, "data_set": self.data.loaded.name, "model": self.facts.name}

    def text_key(self, problem: Problem) -> str:
        """Key of what the model writes about a problem: its CoT, or its draft."""
        return key_of(scope=self.scope_key, problem=self.data.problem_key(problem))


@dataclass(frozen=True, eq=False)
class ChainStudy(Study):
    """A study whose model writes chains of thought.

    Attributes:
        encoder: Prompts of this model as token ids.
    """

    config: ChainsConfig
    encoder: PromptEncoder

    def cot_key(self, problem: Problem) -> str:
        """Key of a problem's CoT."""
        return self.text_key(problem)


class Subject(NamedTuple):
    """A model on a data set, before it is a study."""

    model: ModelConfig
    facts: ModelFacts
    data: DataSet


def subjects(
    config: RunConfig, loaders: Mapping[str, Loader], *, hold_out: bool = True
) -> Iterator[tuple[ModelConfig, ModelFacts, Sequence[DataSet]]]:
    """Every model of a run with all data sets, read before any model is loaded.

    `loaders` are further data sets by name; without `hold_out` no problem is held out.

    Raises:
        ConfigError, DataError, ModelError: Something cannot be used; the message says what and what to do.
    """
    data_sets = prepare_data_sets(config.data_sets, config.seed, loaders, hold_out=hold_out)
    for model in config.models:
        yield model, inspect_model(model), data_sets


def prompt_encoder(model: ModelConfig, facts: ModelFacts, data_sets: Sequence[DataSet]) -> PromptEncoder:
    """The model's prompts; every letter that a question needs can be told apart.

    Raises:
        ModelError: The tokenizer cannot tell two letters apart.
    """
    encoder = PromptEncoder(load_tokenizer(facts.folder, model), model.prompt_style)
    most = max(len(p.choices) for data in data_sets for p in (*data.selection.measured, *data.selection.held_out))
    for context in ("direct", "cot_answer"):
        encoder.letter_ids(most, context)
    return encoder


def chains_scope(config: ChainsConfig, subject: Subject) -> str:
    """Hash of everything but the problem that a CoT, the answers around it and its steps depend on."""
    return key_of(
        **model_settings(subject),
        seed=config.seed,
        cot=config.cot.model_dump(mode="json"),
        eligible=config.eligible,
        code=code_revision(*CHAINS_CODE),
        segmenter=segmenter_revision(),
        tagger=tagger_revision(),
    )


def model_settings(subject: Subject) -> dict[str, Any]:
    """What a study's texts depend on of its model, and the name of its data set."""
    model = subject.model
    return {
        "model": subject.facts.revision,
        "dtype": model.dtype,
        "attention": model.attention,
        "prompt_style": model.prompt_style,
        "data_set": subject.data.loaded.name,
    }
