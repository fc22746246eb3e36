"""One model on one data set by one method: what is to be measured, and the keys of everything that comes out of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairwitness.config import fingerprint
from fairwitness.errors import ConfigError
from fairwitness.experiment.data_set import DataSet, Loader, prepare_data_sets
from fairwitness.fur.config import FurSweepConfig, LoraConfig, StudyConfig
from fairwitness.fur.search.selected import Wanted, selected_rate
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.tokens import PromptEncoder
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import code_revision, key_of
from fairwitness.text.content_words import tagger_revision
from fairwitness.text.numbers import method_name
from fairwitness.text.segmentation import segmenter_revision

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Study:
    """One model on one data set, with one way of changing weights.

    Studies that differ in the method alone have the same scope: CoTs and base measurements are theirs in common.

    Attributes:
        config: The run's configuration, with this study's method and rates.
        model: The model's part of it.
        facts: What is known of the model.
        data: The data set.
        encoder: Prompts of this model as token ids.
        scope_key: Hash of all that the base measurements depend on.
    """

    config: StudyConfig
    model: ModelConfig
    facts: ModelFacts
    data: DataSet
    encoder: PromptEncoder
    scope_key: str

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of this model."""
        return self.config.rates_of(self.model)

    @property
    def lora_rank(self) -> int | None:
        """Rank of the adapters; None where FF2 itself is trained."""
        method = self.config.recipe.method
        return method.rank if isinstance(method, LoraConfig) else None

    @property
    def label(self) -> str:
        """Model and data set, and the method where it is not full FF2, for people."""
        method = self.config.recipe.method.kind
        shown = "" if method == "ff2" else f" ({method_name(method, self.lora_rank)})"
        return f"{self.facts.name} on {self.data.loaded.name}{shown}"

    def cell_key(self, lr: float) -> str:
        """Hash of all that the results of one rate depend on."""
        recipe, measure = (part.model_dump(mode="json") for part in (self.config.recipe, self.config.measure))
        return key_of(scope=self.scope_key, recipe=recipe, measure=measure, lr=lr)

    def cot_key(self, problem: Problem) -> str:
        """Key of a problem's CoT."""
        return key_of(scope=self.scope_key, problem=self.data.problem_key(problem))


def prepare_studies(config: StudyConfig, loaders: Mapping[str, Loader]) -> list[Study]:
    """Reads all data sets and looks at all models, before any model is loaded; one study per method, too.

    Raises:
        ConfigError, DataError, ModelError: Something cannot be used; the message says what and what to do.
    """
    data_sets = prepare_data_sets(config.data_sets, config.seed, loaders)
    studies = []
    for model in config.models:
        facts = inspect_model(model)
        encoder = PromptEncoder(load_tokenizer(facts.folder, model), model.prompt_style)
        most = max(len(p.choices) for data in data_sets for p in (*data.selection.measured, *data.selection.held_out))
        for context in ("direct", "cot_answer"):
            encoder.letter_ids(most, context)
        studies += [
            _study(_with_rate(part, facts, data), model, facts, data, encoder)
            for data in data_sets
            for part in config.by_method()
        ]
    _refuse_twins(studies)
    return studies


def _with_rate(config: StudyConfig, facts: ModelFacts, data: DataSet) -> StudyConfig:
    """The configuration with the selected rate of this model and data set, where one is asked for."""
    if not isinstance(config, FurSweepConfig) or config.lr_search is None:
        return config
    wanted = Wanted(facts.name, facts.revision, data.loaded.name, data.loaded.data_revision, config.recipe)
    lr = selected_rate(config.lr_search, wanted)
    log.info("%s on %s: rate %g, selected by %s", facts.name, data.loaded.name, lr, config.lr_search)
    return config.model_copy(update={"rates": (lr,), "lr": None, "lr_search": None})


def _refuse_twins(studies: Sequence[Study]) -> None:
    """Two names of one model would share keys, and the report would show the results of both under one."""
    names: dict[str, str] = {}
    for study in studies:
        first = names.setdefault(study.scope_key, study.facts.name)
        if first != study.facts.name:
            raise ConfigError(f"models: {first} and {study.facts.name} are one model with the same settings; keep one")


def _study(config: StudyConfig, model: ModelConfig, facts: ModelFacts, data: DataSet, encoder: PromptEncoder) -> Study:
    scope = key_of(
        model=facts.revision,
        ff2=list(facts.ff2_names),
        dtype=model.dtype,
        attention=model.attention,
        prompt_style=model.prompt_style,
        data=data.content_key,
        seed=config.seed,
        cot=config.cot.model_dump(mode="json"),
        eligible=config.recipe.eligible,
        code=code_revision(),
        segmenter=segmenter_revision(),
        tagger=tagger_revision(),
    )
    return Study(config, model, facts, data, encoder, scope)


def studies_fingerprint(studies: Sequence[Study]) -> str:
    """Hash of everything that a run measures."""
    return fingerprint([[s.scope_key, [s.cell_key(lr) for lr in s.rates]] for s in studies])
