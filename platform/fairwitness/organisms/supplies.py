"""What the shipped models give to any measure: their data sets, rules for texts about their worlds, their folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairwitness.config import Config
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.measure import Supplies
from fairwitness.lm.config import ModelConfig
from fairwitness.organisms.rewrites import rewrite
from fairwitness.organisms.shipped import ORGANISM, load_organism_problems, organism_path
from fairwitness.organisms.thinker.shipped import THINKER, load_thinker_problems, thinker_path
from fairwitness.records.code import code_revision

LOADERS: Mapping[str, Loader] = {ORGANISM: load_organism_problems, THINKER: load_thinker_problems}
"""Data sets beyond those of `fairwitness.problems`."""

SHIPPED: Mapping[str, Callable[[], Path]] = {ORGANISM: organism_path, THINKER: thinker_path}
"""Models that come with the package, by their alias."""


def supplies() -> Supplies:
    """All of it, for the jobs of this package."""
    revision = code_revision("fairwitness.organisms.rewrites")
    return Supplies(loaders=LOADERS, rules={ORGANISM: (revision, rewrite)})


def with_shipped(settings: Any) -> Any:
    """The same settings, with the folder of a shipped model wherever its alias names a model."""
    if isinstance(settings, tuple):
        return tuple(map(with_shipped, settings))
    if not isinstance(settings, Config):
        return settings
    if isinstance(settings, ModelConfig) and settings.model in SHIPPED:
        folder = SHIPPED[settings.model]()
        return settings.model_copy(update={"model": str(folder), "name": settings.name or settings.model})
    return settings.model_copy(update={name: new for name, old in settings if (new := with_shipped(old)) != old})
