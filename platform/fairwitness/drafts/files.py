"""Drafts of other models, read from files; a line that cannot be used is named and the rest is read."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fairwitness.drafts.config import DraftFileConfig
from fairwitness.errors import DataError
from fairwitness.problems.readers import read_files
from fairwitness.problems.records import Record, Refused
from fairwitness.text.think_tags import Irregularity, Tags, find_draft


@dataclass(frozen=True)
class GivenDraft:
    """A draft from a file, its tags taken off, and what was unusual about them."""

    text: str
    irregular: tuple[Irregularity, ...]


@dataclass(frozen=True)
class DraftFile:
    """The usable drafts of a file by problem id, and the lines that were refused."""

    drafts: Mapping[str, GivenDraft]
    refused: tuple[Refused, ...]


def read_drafts(config: DraftFileConfig, tags: Tags | None, known: AbstractSet[str]) -> DraftFile:
    """Reads a file of drafts (JSONL, CSV or Parquet).

    Args:
        config: The file and its fields.
        tags: Tags to take off; None leaves the text as it is.
        known: Ids of the problems that a draft may be for.

    Raises:
        DataError: The file cannot be read, or holds no usable draft.
    """
    found = read_files(config.path)
    refused = list(found.refused)
    drafts: dict[str, GivenDraft] = {}
    for record in found.records:
        if any(str(record.values.get(name)) != value for name, value in config.where.items()):
            continue
        fault = _fault(record, config, known, drafts)
        if fault:
            refused.append(fault)
        else:
            drafts[str(record.values[config.problem_field])] = _given(str(record.values[config.draft_field]), tags)
    if not drafts:
        first = f"; the first: {refused[0]}" if refused else ""
        raise DataError(f"{config.path}: no usable draft ({len(refused)} lines were refused{first})")
    return DraftFile(drafts, tuple(refused))


def _fault(
    record: Record, config: DraftFileConfig, known: AbstractSet[str], drafts: Mapping[str, GivenDraft]
) -> Refused | None:
    for field in (config.problem_field, config.draft_field):
        if not isinstance(record.values.get(field), str | int) or not str(record.values[field]).strip():
            return record.refuse(field, "is missing or empty")
    problem_id = str(record.values[config.problem_field])
    if problem_id not in known:
        return record.refuse(config.problem_field, f"{problem_id!r} is no problem of the data sets")
    if problem_id in drafts:
        return record.refuse(config.problem_field, f"a second draft for {problem_id!r}; the first one is used")
    return None


def _given(text: str, tags: Tags | None) -> GivenDraft:
    if tags is None or (tags.open not in text and tags.close not in text):
        return GivenDraft(text.strip(), ())
    span = find_draft(text, tags, prefilled=not text.lstrip().startswith(tags.open))
    return GivenDraft(text[span.start : span.end].strip(), span.irregular)
