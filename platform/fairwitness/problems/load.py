"""From a data set's configuration to its problems."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fairwitness.config import fingerprint
from fairwitness.errors import DataError
from fairwitness.problems.config import HUB, LOCAL, DataConfig, FieldMap
from fairwitness.problems.mapping import choose_fields, draw_number, map_records
from fairwitness.problems.problem import Problem
from fairwitness.problems.readers import read_files, text_fault
from fairwitness.problems.records import LoadedProblems, ReadResult, Record, Refused


@dataclass(frozen=True)
class Definition:
    """A known data set.

    Attributes:
        hub_id: Its id on the hub.
        hub_config: Its configuration (subset) there, or None.
        hub_split: The split that is used unless another is asked for.
        maps: Field mappings, one per shape in which its records occur.
        csv_header: Whether its CSV files begin with a line of names.
        shuffle_choices: Whether the order of the choices gives the answer away, so that it is shuffled.
        has_subjects: Whether its files are named after subjects (`<subject>_test.csv`) and its hub rows name theirs.
    """

    hub_id: str
    hub_config: str | None
    hub_split: str
    maps: tuple[FieldMap, ...]
    csv_header: bool = True
    shuffle_choices: bool = False
    has_subjects: bool = False


DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "arc_challenge": Definition(
            hub_id="allenai/ai2_arc",
            hub_config="ARC-Challenge",
            hub_split="test",
            maps=(
                FieldMap(id="id", question="question", choices="choices", gold="answerKey", gold_kind="label"),
                FieldMap(
                    id="id", question="question.stem", choices="question.choices", gold="answerKey", gold_kind="label"
                ),
            ),
        ),
        "openbookqa": Definition(
            hub_id="allenai/openbookqa",
            hub_config="main",
            hub_split="test",
            maps=(
                FieldMap(id="id", question="question_stem", choices="choices", gold="answerKey", gold_kind="label"),
                FieldMap(
                    id="id", question="question.stem", choices="question.choices", gold="answerKey", gold_kind="label"
                ),
            ),
        ),
        "strategyqa": Definition(
            hub_id="ChilleD/StrategyQA",
            hub_config=None,
            hub_split="test",
            maps=(
                FieldMap(
                    id="qid",
                    question="question",
                    choices=None,
                    fixed_choices=("Yes", "No"),
                    gold="answer",
                    gold_kind="bool",
                ),
            ),
        ),
        "truthfulqa": Definition(
            hub_id="truthfulqa/truthful_qa",
            hub_config="multiple_choice",
            hub_split="validation",
            maps=(FieldMap(question="question", choices="mc1_targets", gold=None),),
            shuffle_choices=True,
        ),
        "bbh_sports": Definition(
            hub_id="lukaemon/bbh",
            hub_config="sports_understanding",
            hub_split="test",
            maps=(
                FieldMap(question="input", choices=None, fixed_choices=("yes", "no"), gold="target", gold_kind="text"),
            ),
        ),
        "mmlu": Definition(
            hub_id="cais/mmlu",
            hub_config="all",
            hub_split="test",
            maps=(
                FieldMap(
                    question="question", choices="choices", gold="answer", gold_kind="index0", metadata=("subject",)
                ),
                FieldMap(
                    question="0", choices=("1", "2", "3", "4"), gold="5", gold_kind="letter", metadata=("subject",)
                ),
            ),
            csv_header=False,
            has_subjects=True,
        ),
    }
)


def read_hub(hub_id: str, *, config: str | None, split: str, revision: str | None) -> ReadResult:
    """Downloads (or takes from the cache) one split of a data set.

    Args:
        hub_id: Id on the hub, or a local folder in the hub's layout.
        config: Configuration (subset), or None.
        split: Split, for example `test` or `test[:100]`.
        revision: Commit or tag, or None for the newest.

    Returns:
        One record per row, numbered from 1. The content hash covers the rows, so that it does not depend on the cache.

    Raises:
        DataError: The set, its configuration or split does not exist, or cannot be fetched.
    """
    import datasets

    name = f"hub:{hub_id}" + (f"/{config}" if config else "")
    try:
        rows = datasets.load_dataset(hub_id, config, split=split, revision=revision)
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{name}: split {split!r} cannot be loaded ({reason}); check id, configuration and split, go online, or "
            "give a downloaded file by `path`"
        ) from error
    records: list[Record] = []
    refused: list[Refused] = []
    for line, row in enumerate(rows, start=1):
        record = Record(name, line, line, dict(row))
        fault = text_fault(record)
        refused.append(fault) if fault else records.append(record)
    content = [json.dumps(record.values, sort_keys=True, default=str) for record in records]
    return ReadResult(records, refused, fingerprint(content))


class Selection(NamedTuple):
    """Two disjoint draws from one data set.

    Attributes:
        measured: Problems whose CoT steps are unlearned.
        held_out: Problems on which specificity is measured.
    """

    measured: tuple[Problem, ...]
    held_out: tuple[Problem, ...]


def select(loaded: LoadedProblems, *, num_problems: int | None, num_held_out: int, seed: int) -> Selection:
    """Draws held-out and measured problems by seed and problem id.

    The order of the source has no influence. The held-out problems do not depend on `num_problems`, and a larger
    `num_problems` adds to the measured ones without exchanging any.

    Args:
        loaded: The data set.
        num_problems: How many to measure; None takes all that are not held out.
        num_held_out: How many to hold out.
        seed: Run seed.

    Raises:
        DataError: There are not enough problems for both.
    """
    available = len(loaded.problems)
    needed = num_held_out + (num_problems or 1)
    if available < needed:
        raise DataError(_too_few(loaded, num_problems, num_held_out))
    ranked = sorted(
        loaded.problems,
        key=lambda problem: (draw_number(seed, loaded.name, problem.problem_id), problem.problem_id),
    )
    end = None if num_problems is None else needed
    return Selection(measured=tuple(ranked[num_held_out:end]), held_out=tuple(ranked[:num_held_out]))


def _too_few(loaded: LoadedProblems, num_problems: int | None, num_held_out: int) -> str:
    available = len(loaded.problems)
    asked = "at least one" if num_problems is None else str(num_problems)
    ways = ["give a larger data set"]
    if available > (num_problems or 1):
        ways.append(f"set num_held_out to at most {available - (num_problems or 1)}")
    if num_problems is not None and available > num_held_out:
        ways.append(f"set num_problems to at most {available - num_held_out}")
    refused = f" ({len(loaded.refused)} records were refused)" if loaded.refused else ""
    return (
        f"{loaded.name}: {available} problems{refused} are too few for {num_held_out} held-out problems and {asked} to "
        f"measure; {', or '.join(ways)}"
    )


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
