"""From a configuration to its studies: data sets read, models looked at, rates known, before any model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fairwitness.chains.study import Subject, chains_scope, prompt_encoder, subjects
from fairwitness.errors import ConfigError
from fairwitness.experiment.data_set import DataSet, Loader
from fairwitness.fur.config import FurSweepConfig, StudyConfig
from fairwitness.fur.search.selected import SearchSubject, selected_rate
from fairwitness.fur.study import FurStudy
from fairwitness.lm.facts import ModelFacts

log = logging.getLogger(__name__)


def prepare_studies(config: StudyConfig, loaders: Mapping[str, Loader]) -> list[FurStudy]:
    """Reads all data sets and looks at all models, before any model is loaded; one study per method, too.

    Raises:
        ConfigError, DataError, ModelError: Something cannot be used; the message says what and what to do.
    """
    studies = []
    for model, facts, data_sets in subjects(config, loaders):
        encoder = prompt_encoder(model, facts, data_sets)
        studies += [
            FurStudy(own, model, facts, data, chains_scope(own, Subject(model, facts, data)), encoder)
            for data in data_sets
            for part in config.by_method()
            for own in (_with_rate(part, facts, data),)
        ]
    _refuse_twins(studies)
    return studies


def _with_rate(config: StudyConfig, facts: ModelFacts, data: DataSet) -> StudyConfig:
    """The configuration with the selected rate of this model and data set, where one is asked for."""
    if not isinstance(config, FurSweepConfig) or config.lr_search is None:
        return config
    wanted = SearchSubject(facts.name, facts.revision, data.loaded.name, data.loaded.data_revision, config.recipe)
    lr = selected_rate(config.lr_search, wanted)
    log.info("%s on %s: rate %g, selected by %s", facts.name, data.loaded.name, lr, config.lr_search)
    return config.model_copy(update={"rates": (lr,), "lr": None, "lr_search": None})


def _refuse_twins(studies: Sequence[FurStudy]) -> None:
    """Two names of one model would share keys, and the report would show the results of both under one."""
    names: dict[str, str] = {}
    for study in studies:
        first = names.setdefault(study.scope_key, study.facts.name)
        if first != study.facts.name:
            raise ConfigError(f"models: {first} and {study.facts.name} are one model with the same settings; keep one")
