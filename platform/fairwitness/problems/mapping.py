"""Turns raw records into problems by a field mapping."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from fairwitness.errors import DataError
from fairwitness.problems.choices import (
    ChoiceSet,
    RawGold,
    choices_of_columns,
    gold_index,
    infer_gold_kind,
    is_unknown,
    parse_choices,
)
from fairwitness.problems.config import FieldMap, GoldKind
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import FieldError, Record, Refused

_ID_DIGITS = 16


class Draft(NamedTuple):
    """A record whose fields were found and read, before its correct choice is normalised."""

    record: Record
    problem_id: str
    question: str
    choices: ChoiceSet
    gold: Any
    metadata: dict[str, str | int | float | bool]


class MapResult(NamedTuple):
    """Problems and refusals of one mapping, both in the order of the records."""

    problems: list[Problem]
    refused: list[Refused]


def map_records(
    records: Sequence[Record],
    fields: FieldMap,
    *,
    data_set: str,
    split: str,
    shuffle_seed: int | None,
) -> MapResult:
    """Reads every record by one field mapping.

    Args:
        records: The raw records.
        fields: Which field holds what.
        data_set: Name of the data set.
        split: Name of the split.
        shuffle_seed: None, or the seed by which, with the problem's id, its choices are shuffled.

    Returns:
        The problems, and one refusal for each record that has a missing field, an empty question, too few, too many or
        empty choices, a correct choice that is not among them, or the id of an earlier record.

    Raises:
        DataError: It cannot be told how the correct choices are written.
    """
    refused: list[Refused] = []
    drafts: list[Draft] = []
    for record in records:
        try:
            drafts.append(_draft(record, fields))
        except FieldError as error:
            refused.append(error.refused(record))
    kind = _gold_kind(drafts, fields, data_set)
    problems: list[Problem] = []
    first_place: dict[str, Record] = {}
    for draft in drafts:
        try:
            earlier = first_place.setdefault(draft.problem_id, draft.record)
            if earlier is not draft.record:
                raise _repeated(draft, fields, earlier)
            problems.append(_problem(draft, fields, kind, data_set, split, shuffle_seed))
        except FieldError as error:
            refused.append(error.refused(draft.record))
    order = {(record.source, record.number): place for place, record in enumerate(records)}
    return MapResult(problems, sorted(refused, key=lambda item: order[item.source, item.number]))


def choose_fields(records: Sequence[Record], maps: Sequence[FieldMap], *, source: str) -> FieldMap:
    """The first mapping whose fields all occur in the records.

    Raises:
        DataError: None fits; the message names the missing and the present fields.
    """
    missing_of = [missing_columns(records, fields) for fields in maps]
    for fields, missing in zip(maps, missing_of, strict=True):
        if not missing:
            return fields
    present = sorted({name for record in records for name in record.values})
    fewest = min(missing_of, key=len)
    raise DataError(
        f"{source}: no record has the field {', '.join(map(repr, fewest))}; there are {', '.join(map(repr, present))}. "
        "Name the right ones under `fields`"
    )


def missing_columns(records: Iterable[Record], fields: FieldMap) -> list[str]:
    """The fields of a mapping that no record has."""
    records = list(records)
    return [name for name in fields.columns if not any(has_field(record.values, name) for record in records)]


def has_field(values: Mapping[str, Any], name: str) -> bool:
    """Whether a record has a field, by its name or by the dots in it."""
    try:
        get_field(values, name)
    except FieldError:
        return False
    return True


def get_field(values: Mapping[str, Any], name: str) -> Any:
    """The value of a field; `a.b` is field b inside field a, unless a field is named `a.b` itself.

    Raises:
        FieldError: The record does not have it.
    """
    if name in values:
        return values[name]
    inner: Any = values
    for part in name.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            raise FieldError(name, "is missing")
        inner = inner[part]
    return inner


def draw_number(seed: int, *names: str) -> int:
    """A number that depends on the seed and the names alone: the same on every machine and in every order."""
    text = "\x1f".join((str(seed), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def _draft(record: Record, fields: FieldMap) -> Draft:
    question = get_field(record.values, fields.question)
    if not isinstance(question, str):
        raise FieldError(
            fields.question, f"is a {type(question).__name__}, not text" if question is not None else "is empty"
        )
    if not question.strip():
        raise FieldError(fields.question, "is empty")
    choices = _choices(record, fields)
    gold = get_field(record.values, fields.gold) if fields.gold else None
    metadata = {
        name: _plain(get_field(record.values, name)) for name in fields.metadata if has_field(record.values, name)
    }
    return Draft(record, _problem_id(record, fields, question, choices), question.strip(), choices, gold, metadata)


def _choices(record: Record, fields: FieldMap) -> ChoiceSet:
    if fields.fixed_choices:
        return ChoiceSet(fields.fixed_choices)
    if isinstance(fields.choices, str):
        return parse_choices(get_field(record.values, fields.choices), fields.choices)
    names = fields.choices or ()
    present = [record.values.get(name) for name in names]
    return choices_of_columns(present, names[0])


def _problem_id(record: Record, fields: FieldMap, question: str, choices: ChoiceSet) -> str:
    if fields.id is None:
        text = "\x1f".join((question.strip(), *choices.texts))
        return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]
    value = get_field(record.values, fields.id)
    if is_unknown(value) or not isinstance(value, str | int):
        raise FieldError(fields.id, "is empty" if is_unknown(value) else f"is a {type(value).__name__}, not a name")
    return str(value).strip()


def _gold_kind(drafts: Sequence[Draft], fields: FieldMap, source: str) -> GoldKind:
    if fields.gold_kind != "auto":
        return fields.gold_kind
    known = [RawGold(draft.gold, draft.choices) for draft in drafts if not is_unknown(draft.gold)]
    return infer_gold_kind(known, source=source)


def _repeated(draft: Draft, fields: FieldMap, earlier: Record) -> FieldError:
    if fields.id is None:
        return FieldError(fields.question, f"has the same question and choices as {earlier.place}")
    return FieldError(fields.id, f"{draft.problem_id!r} is already the name of the record at {earlier.place}")


def _problem(
    draft: Draft, fields: FieldMap, kind: GoldKind, data_set: str, split: str, shuffle_seed: int | None
) -> Problem:
    index = draft.choices.marked
    if not is_unknown(draft.gold):
        index = gold_index(RawGold(draft.gold, draft.choices), kind)
        if index is None:
            letters = f"A to {ascii_uppercase[len(draft.choices.texts) - 1]}"
            raise FieldError(fields.gold or "", f"{draft.gold!r} (read as {kind}) is not one of the choices {letters}")
    order = list(range(len(draft.choices.texts)))
    if shuffle_seed is not None:
        order.sort(key=lambda place: draw_number(shuffle_seed, data_set, draft.problem_id, str(place)))
    return Problem(
        problem_id=draft.problem_id,
        question=draft.question,
        choices=tuple(draft.choices.texts[place] for place in order),
        gold=None if index is None else ascii_uppercase[order.index(index)],
        data_set=data_set,
        split=split,
        metadata=draft.metadata,
    )


def _plain(value: Any) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)
