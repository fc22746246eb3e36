"""One model on one data set with drafts of one source: what is measured, and the keys of what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.files import DraftFile, read_drafts
from fairwitness.drafts.styles import DraftStyle
from fairwitness.errors import ModelError
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import Refused
from fairwitness.records.data_set import DataSet, Loader, prepare_data_sets
from fairwitness.records.keys import code_revision, key_of
from fairwitness.text.segmentation import segmenter_revision

MEASURING_PACKAGES = ("text", "problems", "lm", "drafts")


@dataclass(frozen=True, eq=False)
class DraftStudy:
    """One model on one data set with drafts of one source.

    Attributes:
        config: The run's configuration.
        model: The model's part of it.
        facts: What is known of the model.
        data: The data set.
        style: How the model's drafts look.
        source: `own`, or the name of a file of drafts.
        given: That file; None for `own`.
        scope_key: Hash of all that a draft depends on.
    """

    config: DraftFaithfulnessConfig
    model: ModelConfig
    facts: ModelFacts
    data: DataSet
    style: DraftStyle
    source: str
    given: DraftFile | None
    scope_key: str

    @property
    def label(self) -> str:
        """Model, data set and source, for people."""
        return f"{self.facts.name} on {self.data.loaded.name}, {self.source} drafts"

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Lines of the file that cannot be used."""
        return self.given.refused if self.given else ()

    def draft_key(self, problem: Problem) -> str:
        """Key of a problem's draft."""
        return key_of(scope=self.scope_key, problem=self.data.problem_key(problem))


def prepare_draft_studies(config: DraftFaithfulnessConfig, loaders: Mapping[str, Loader]) -> list[DraftStudy]:
    """Reads all data sets and files of drafts and looks at all models, before any model is loaded.

    Raises:
        ConfigError, DataError, ModelError: Something cannot be used; the message says what and what to do.
    """
    data_sets = prepare_data_sets(config.data_sets, config.seed, loaders, hold_out=False)
    known = Counter(p.problem_id for data in data_sets for p in data.loaded.problems)
    twice = {name for name, count in known.items() if count > 1}
    tags = config.tags.pair if config.tags else None
    files = {file.name: read_drafts(file, tags, known.keys(), ambiguous=twice) for file in config.draft_files}
    studies = []
    for model in config.models:
        facts = inspect_model(model)
        style = _style(config, model, facts)
        for data in data_sets:
            for source in config.sources:
                given = files.get(source)
                scope = _scope(config, model, facts, data, source, given)
                studies.append(DraftStudy(config, model, facts, data, style, source, given, scope))
    return studies


def _style(config: DraftFaithfulnessConfig, model: ModelConfig, facts: ModelFacts) -> DraftStyle:
    tags = config.tags.pair if config.tags else None
    try:
        return DraftStyle(load_tokenizer(facts.folder, model), tags, model.prompt_style == "chat")
    except ModelError as error:
        raise ModelError(f"{facts.name}: {error}") from error


def _scope(
    config: DraftFaithfulnessConfig,
    model: ModelConfig,
    facts: ModelFacts,
    data: DataSet,
    source: str,
    given: DraftFile | None,
) -> str:
    return key_of(
        model=facts.revision,
        dtype=model.dtype,
        attention=model.attention,
        prompt_style=model.prompt_style,
        tags=config.tags and config.tags.model_dump(),
        data=data.content_key,
        source=source,
        given={name: draft.text for name, draft in sorted(given.drafts.items())} if given else None,
        seed=config.seed,
        sampling=config.sampling.model_dump(),
        max_tokens=config.limits.draft,
        backend=config.engine.backend,
        decomposer=config.decomposer,
        conclusion_order=list(config.conclusion_order),
        judge=config.judge.model_dump(mode="json") if config.has_judge else None,
        code=code_revision(MEASURING_PACKAGES),
        segmenter=segmenter_revision(),
    )
