"""From a data set's configuration to its problems."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fairwitness.config import fingerprint
from fairwitness.errors import DataError
from fairwitness.problems.config import HUB, LOCAL, DataConfig, FieldMap
from fairwitness.problems.definitions import DEFINITIONS, Definition
from fairwitness.problems.hub import read_hub
from fairwitness.problems.mapping import choose_fields, map_records
from fairwitness.problems.readers import read_files
from fairwitness.problems.records import LoadedProblems, ReadResult, Record, Refused

MAPPING_VERSION = 1
_NUM_SHOWN = 3
_SUBJECT_SUFFIX = re.compile(r"_(test|dev|val)$")
_PLAIN = Definition(hub_id="", hub_config=None, hub_split="test", maps=(FieldMap(),))


class _Source(NamedTuple):
    name: str
    place: str
    split: str
    raw: ReadResult


def load_problems(config: DataConfig, *, seed: int, others: Collection[str] = ()) -> LoadedProblems:
    """Reads a data set from files or the hub.

    Args:
        config: Which set, where, and how its fields map.
        seed: Run seed; decides the order of choices where they are shuffled, and nothing else.
        others: Names of sets that are made elsewhere, for the message about an unknown one.

    Returns:
        All problems of the set, with the refused records beside them.

    Raises:
        DataError: The set is unknown, missing or unreadable, a mapped field occurs in no record, or no problem is left.
    """
    definition = _definition(config, others)
    source = _read(config, definition)
    shuffle = definition.shuffle_choices if config.shuffle_choices is None else config.shuffle_choices
    records = _with_subjects(source.raw.records, config, definition)
    if not records:
        raise DataError(_nothing_left(source.place, source.raw.refused))
    maps = (config.fields,) if config.fields else definition.maps
    fields = choose_fields(records, maps, source=source.place)
    mapped = map_records(
        records, fields, data_set=source.name, split=source.split, shuffle_seed=seed if shuffle else None
    )
    refused = (*source.raw.refused, *mapped.refused)
    if not mapped.problems:
        raise DataError(_nothing_left(source.place, refused))
    return LoadedProblems(
        name=source.name,
        split=source.split,
        problems=tuple(mapped.problems),
        refused=refused,
        data_revision=fingerprint(
            [
                MAPPING_VERSION,
                source.raw.content_hash,
                fields.model_dump(mode="json"),
                list(config.subjects),
                seed if shuffle else None,
                config.encoding if config.path else None,
            ]
        ),
    )


def _definition(config: DataConfig, others: Collection[str]) -> Definition:
    if config.data_set in (LOCAL, HUB):
        return _PLAIN
    if config.data_set not in DEFINITIONS:
        known = [*DEFINITIONS, *others, LOCAL, HUB]
        near = difflib.get_close_matches(config.data_set, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? Known" if near else "known"
        raise DataError(f"data set {config.data_set!r} is unknown; {hint} are {', '.join(known)}")
    return DEFINITIONS[config.data_set]


def _read(config: DataConfig, definition: Definition) -> _Source:
    known_name = config.name or (config.data_set if config.data_set in DEFINITIONS else None)
    if config.path:
        header = definition.csv_header if config.csv_header is None else config.csv_header
        raw = read_files(config.path, encoding=config.encoding, csv_header=header)
        return _Source(known_name or Path(config.path).stem, config.path, config.split or "", raw)
    hub_id = config.hub_id or definition.hub_id
    split = config.split or definition.hub_split
    subset = config.hub_config or (None if config.hub_id else definition.hub_config)
    raw = read_hub(hub_id, config=subset, split=split, revision=config.revision)
    name = known_name or hub_id.rstrip("/").rsplit("/", 1)[-1]
    return _Source(name, f"hub:{hub_id}", split, raw)


def _with_subjects(records: Sequence[Record], config: DataConfig, definition: Definition) -> Sequence[Record]:
    if not definition.has_subjects:
        return records
    named = [
        record if "subject" in record.values else record._replace(values={**record.values, "subject": _subject(record)})
        for record in records
    ]
    present = sorted({str(record.values["subject"]) for record in named})
    unknown = sorted(set(config.subjects) - set(present))
    if unknown:
        near = difflib.get_close_matches(unknown[0], present, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(present)}"
        raise DataError(f"{config.data_set}: subject {unknown[0]!r} does not occur; {hint}")
    return [record for record in named if not config.subjects or record.values["subject"] in config.subjects]


def _subject(record: Record) -> str:
    return _SUBJECT_SUFFIX.sub("", Path(record.source).stem)


def _nothing_left(place: str, refused: Sequence[Refused]) -> str:
    if not refused:
        return f"{place}: holds no records; check the file or split"
    shown = "; ".join(str(item) for item in refused[:_NUM_SHOWN])
    return f"{place}: no problem could be read, all {len(refused)} records were refused, the first: {shown}"
