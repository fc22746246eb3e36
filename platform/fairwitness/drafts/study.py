"""One model on one data set with drafts of one source: what is measured, and the keys of what comes out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from fairwitness.chains.study import Study, Subject, model_settings, subjects
from fairwitness.drafts.config import DraftFaithfulnessConfig, DraftFileConfig
from fairwitness.drafts.reading import asked_key
from fairwitness.drafts.styles import DraftStyle
from fairwitness.errors import DataError, ModelError
from fairwitness.experiment.data_set import Loader, refused_row
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import load_tokenizer
from fairwitness.problems.problem import Problem
from fairwitness.problems.readers import read_files
from fairwitness.problems.records import Record, Refused
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.text.segmentation import segmenter_revision
from fairwitness.text.think_tags import Irregularity, Tags, find_draft

NUM_NAMED = 5
"""Refused lines that are named one by one; all are stored."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GivenDraft:
    """A draft from a file, its tags taken off, and what was unusual about them."""

    text: str
    irregular: tuple[Irregularity, ...]


@dataclass(frozen=True)
class DraftFile:
    """A file of drafts.

    Attributes:
        drafts: The usable ones, by problem id.
        refused: The lines that were refused.
        faults: Those among them that name a problem, by its id.
        content_hash: Hash of the file.
    """

    drafts: Mapping[str, GivenDraft]
    refused: tuple[Refused, ...]
    faults: Mapping[str, Refused]
    content_hash: str


def read_drafts(
    config: DraftFileConfig,
    tags: Tags | None,
    known: AbstractSet[str],
    *,
    ambiguous: AbstractSet[str] = frozenset(),
) -> DraftFile:
    """Reads a file of drafts (JSONL, CSV or Parquet).

    Args:
        config: The file and its fields.
        tags: Tags of the model's own drafts, which are taken off where the file names no tags of its own; None for a
            model without tags, then `<think>` and `</think>` are taken off.
        known: Ids of the problems that a draft may be for.
        ambiguous: Ids that problems of several data sets have.

    Raises:
        DataError: The file cannot be read, or holds no usable draft.
    """
    around = config.tags.pair if config.tags else tags or Tags()
    try:
        found = read_files(config.path, encoding=config.encoding)
    except DataError as error:
        raise DataError(f"draft_files, {config.name}: {error}") from error
    refused = list(found.refused)
    faults: dict[str, Refused] = {}
    drafts: dict[str, GivenDraft] = {}
    for record in found.records:
        if any(str(record.values.get(name)) != value for name, value in config.where.items()):
            continue
        fault = _fault(record, config, known, ambiguous, drafts)
        if fault is None:
            drafts[str(record.values[config.problem_field])] = _given(record.values[config.draft_field], around)
        else:
            refused.append(fault)
            faults.setdefault(str(record.values.get(config.problem_field)), fault)
    if not drafts:
        raise DataError(f"draft_files, {config.name}: {config.path}: {_why_none(config, len(found.records), refused)}")
    _announce(config, refused)
    return DraftFile(drafts, tuple(refused), faults, found.content_hash)


def _fault(
    record: Record,
    config: DraftFileConfig,
    known: AbstractSet[str],
    ambiguous: AbstractSet[str],
    drafts: Mapping[str, GivenDraft],
) -> Refused | None:
    given, draft = (record.values.get(field) for field in (config.problem_field, config.draft_field))
    if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
        return record.refuse(config.problem_field, "is missing or empty; it names the problem")
    problem_id = str(given)
    if problem_id in ambiguous:
        return record.refuse(
            config.problem_field,
            f"{problem_id!r} is a problem of more than one data set; measure the data sets in runs of their own",
        )
    if problem_id not in known:
        return record.refuse(config.problem_field, f"{problem_id!r} is no problem of the data sets")
    if problem_id in drafts:
        return record.refuse(config.problem_field, f"a second draft for {problem_id!r}; the first one is used")
    if draft is None or draft == "" or (isinstance(draft, str) and not draft.strip()):
        return record.refuse(config.draft_field, "is missing or empty")
    if not isinstance(draft, str):
        return record.refuse(config.draft_field, f"must be text, not {type(draft).__name__}")
    return None


def _why_none(config: DraftFileConfig, num_records: int, refused: list[Refused]) -> str:
    if refused:
        lines = "1 line was" if len(refused) == 1 else f"{len(refused)} lines were"
        return f"no usable draft ({lines} refused; the first: {refused[0]})"
    if not num_records:
        return "the file is empty; it must hold a draft a line, see docs/guides/drafts.md"
    named = ", ".join(f"{name} {value!r}" for name, value in config.where.items())
    return f"none of its {num_records} lines has {named}; check `where`"


def _announce(config: DraftFileConfig, refused: list[Refused]) -> None:
    for one in refused[:NUM_NAMED]:
        log.warning("draft_files, %s: refused: %s", config.name, one)
    if len(refused) > NUM_NAMED:
        log.warning("draft_files, %s: %d more lines were refused", config.name, len(refused) - NUM_NAMED)


def _given(text: str, tags: Tags) -> GivenDraft:
    if tags.open not in text and tags.close not in text:
        return GivenDraft(text.strip(), ())
    span = find_draft(text, tags, prefilled=not text.lstrip().startswith(tags.open))
    return GivenDraft(text[span.start : span.end].strip(), span.irregular)


DRAFTS_CODE = ("fairwitness.drafts.making",)
"""The module whose code, with all that it imports, decides what a draft, its steps and its conclusion are."""


@dataclass(frozen=True, eq=False)
class DraftStudy(Study):
    """One model on one data set with drafts of one source.

    Attributes:
        style: How the model's drafts look.
        source: `own`, or the name of a file of drafts.
        given: That file; None for `own`.
    """

    config: DraftFaithfulnessConfig
    style: DraftStyle
    source: str
    given: DraftFile | None

    @property
    def label(self) -> str:
        """Model, data set and source, for people."""
        return f"{super().label}, {self.source} drafts"

    @property
    def refused(self) -> tuple[Refused, ...]:
        """Lines of the file that cannot be used."""
        return self.given.refused if self.given else ()

    @property
    def refused_rows(self) -> list[dict[str, Any]]:
        """Rows of `problems` for them."""
        given = self.given
        return [refused_row(self.source, given.content_hash, one) for one in given.refused] if given else []

    @property
    def draft_keys(self) -> list[str]:
        """Keys of the drafts of all problems."""
        return [self.draft_key(problem) for problem in self.data.selection.measured]

    def draft_key(self, problem: Problem) -> str:
        """Key of a problem's draft; of a given one, its text is a part."""
        if self.given is None:
            return self.text_key(problem)
        draft = self.given.drafts.get(problem.problem_id)
        return key_of(draft=self.text_key(problem), given=draft and draft.text)


def prepare_draft_studies(config: DraftFaithfulnessConfig, loaders: Mapping[str, Loader]) -> list[DraftStudy]:
    """Reads all data sets and files of drafts and looks at all models, before any model is loaded.

    Raises:
        ConfigError, DataError, ModelError: Something cannot be used; the message says what and what to do.
    """
    models = list(subjects(config, loaders, hold_out=False))
    known = Counter(p.problem_id for data in models[0][2] for p in data.loaded.problems)
    twice = {name for name, count in known.items() if count > 1}
    tags = config.tags.pair if config.tags else None
    files = {file.name: read_drafts(file, tags, known.keys(), ambiguous=twice) for file in config.draft_files}
    studies = []
    for model, facts, data_sets in models:
        style = _style(config, model, facts)
        for data in data_sets:
            for source in config.sources:
                scope = _scope(config, Subject(model, facts, data), source)
                studies.append(DraftStudy(config, model, facts, data, scope, style, source, files.get(source)))
    return studies


def _style(config: DraftFaithfulnessConfig, model: ModelConfig, facts: ModelFacts) -> DraftStyle:
    tags = config.tags.pair if config.tags else None
    try:
        return DraftStyle(load_tokenizer(facts.folder, model), tags, model.prompt_style == "chat")
    except ModelError as error:
        raise ModelError(f"{facts.name}: {error}") from error


def _scope(config: DraftFaithfulnessConfig, subject: Subject, source: str) -> str:
    """Hash of everything but the problem, and the draft where it is given, that a draft's row depends on."""
    asked = ["draft_steps"] if config.decomposer == "judge" else []
    asked += ["draft_conclusion"] if "judge" in config.conclusion_order else []
    return key_of(
        **model_settings(subject),
        tags=config.tags and config.tags.model_dump(),
        source=source,
        seed=config.seed,
        sampling=config.sampling.model_dump(),
        max_tokens=config.limits.draft,
        backend=config.engine.backend,
        decomposer=config.decomposer,
        conclusion_order=config.conclusion_order,
        judge=asked_key(config.judge, asked),
        code=code_revision(*DRAFTS_CODE),
        segmenter=segmenter_revision(),
    )
