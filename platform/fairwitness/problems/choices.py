"""Normalises the correct choice, however a data set writes it, to its index."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, NamedTuple

from fairwitness.errors import DataError
from fairwitness.problems.config import GoldKind
from fairwitness.problems.problem import MAX_CHOICES, MIN_CHOICES
from fairwitness.problems.records import FieldError

_TEXT_KEYS = ("text", "texts", "choices")
_LABEL_KEYS = ("label", "labels")


class ChoiceSet(NamedTuple):
    """The choices of one record.

    Attributes:
        texts: Their texts, in order.
        labels: Labels that they carry in the source; empty when there are none.
        marked: Index of the choice that is marked as correct, or None.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    marked: int | None = None


def parse_choices(value: Any, field: str) -> ChoiceSet:
    """Reads choices given as one value: the shapes listed at `FieldMap.choices`.

    Raises:
        FieldError: The shape is unknown, or there are too few, too many or empty choices.
    """
    if isinstance(value, str):
        value = _from_text(value, field)
    if isinstance(value, Mapping):
        choices = _from_mapping(value, field)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        choices = _from_list(value, field)
    else:
        raise FieldError(field, f"holds {_kind(value)}, not a list of choices")
    return _checked(choices, field)


def choices_of_columns(values: Sequence[Any], field: str) -> ChoiceSet:
    """Choices given as one field each; empty ones at the end are left out.

    Raises:
        FieldError: There are too few, too many or empty choices.
    """
    texts = ["" if value is None or value != value else _as_text(value, field) for value in values]
    while texts and not texts[-1].strip():
        texts.pop()
    return _checked(ChoiceSet(tuple(texts)), field)


def _from_text(text: str, field: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, RecursionError):
            continue
    raise FieldError(field, "is text that is neither a JSON nor a Python list of choices")


def _from_list(items: Sequence[Any], field: str) -> ChoiceSet:
    if items and all(isinstance(item, Mapping) for item in items):
        texts = [_pick(item, _TEXT_KEYS, field) for item in items]
        labels = [_pick(item, _LABEL_KEYS, field) for item in items]
        return ChoiceSet(_texts(texts, field), _texts(labels, field))
    return ChoiceSet(_texts(items, field))


def _from_mapping(value: Mapping[str, Any], field: str) -> ChoiceSet:
    listed = next((value[key] for key in _TEXT_KEYS if isinstance(value.get(key), Sequence)), None)
    if listed is None or isinstance(listed, str):
        if all(map(_is_mark, value.values())) and "".join(map(str, value)) != ascii_uppercase[: len(value)]:
            return _marked(list(value), list(value.values()), field)
        return ChoiceSet(_texts(list(value.values()), field), tuple(str(label) for label in value))
    labels = _pick(value, _LABEL_KEYS, field)
    if not isinstance(labels, Sequence) or len(labels) != len(listed):
        raise FieldError(field, f"has {len(listed)} texts but not as many labels")
    if "labels" in value and all(map(_is_mark, labels)):
        return _marked(listed, labels, field)
    return ChoiceSet(_texts(listed, field), _texts(labels, field))


def _marked(texts: Sequence[Any], marks: Sequence[int], field: str) -> ChoiceSet:
    if sum(marks) != 1:
        raise FieldError(field, f"marks {sum(marks)} choices as correct, exactly one is needed")
    return ChoiceSet(_texts(texts, field), marked=list(marks).index(1))


def _checked(choices: ChoiceSet, field: str) -> ChoiceSet:
    number = len(choices.texts)
    if not MIN_CHOICES <= number <= MAX_CHOICES:
        raise FieldError(field, f"has {number} choices, {MIN_CHOICES} to {MAX_CHOICES} are possible")
    for position, text in enumerate(choices.texts, start=1):
        if not text.strip():
            raise FieldError(field, f"choice {position} of {number} is empty")
    return choices


def _texts(values: Sequence[Any], field: str) -> tuple[str, ...]:
    return tuple(_as_text(value, field) for value in values)


def _as_text(value: Any, field: str) -> str:
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise FieldError(field, f"a choice is {_kind(value)}, not text")


def _pick(item: Mapping[str, Any], keys: Sequence[str], field: str) -> Any:
    for key in keys:
        if key in item:
            return item[key]
    raise FieldError(field, f"a choice has no {keys[0]!r} (it has {', '.join(map(repr, item)) or 'nothing'})")


def _is_mark(value: Any) -> bool:
    return isinstance(value, int) and value in (0, 1)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


_YES = frozenset({"yes", "true"})
_NO = frozenset({"no", "false"})


class RawGold(NamedTuple):
    """A correct choice as written, with the choices that it speaks of."""

    value: Any
    choices: ChoiceSet


def is_unknown(value: Any) -> bool:
    """Whether a value says that the correct choice is not known: null, NaN or blank text."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def gold_index(raw: RawGold, kind: GoldKind) -> int | None:
    """Index of the correct choice under one reading, or None where the reading does not fit."""
    index = _READINGS[kind](raw.value, raw.choices)
    return index if index is not None and 0 <= index < len(raw.choices.texts) else None


def infer_gold_kind(golds: Sequence[RawGold], *, source: str) -> GoldKind:
    """The reading that fits most records.

    Labels that the choices carry win over other readings that fit as many records. Without any gold, or any fit, the
    answer is `letter`.

    Args:
        golds: The known correct choices of the whole set.
        source: Name of the set, for the message.

    Raises:
        DataError: Two readings fit equally many records and disagree on one.
    """
    readings = {kind: [gold_index(raw, kind) for raw in golds] for kind in _READINGS}
    fits = {kind: sum(index is not None for index in indices) for kind, indices in readings.items()}
    most = max(fits.values())
    best = [kind for kind in _READINGS if fits[kind] == most] if most else []
    if not best:
        return "letter"
    for rival in best[1:] if best[0] != "label" else ():
        for raw, ours, theirs in zip(golds, readings[best[0]], readings[rival], strict=True):
            if ours is not None and theirs is not None and ours != theirs:
                raise DataError(
                    f"{source}: the correct choice {raw.value!r} can be read as {best[0]} or as {rival}; "
                    "set fields.gold_kind to the right one"
                )
    return best[0]


def _by_label(value: Any, choices: ChoiceSet) -> int | None:
    text = str(value).strip()
    return choices.labels.index(text) if text in choices.labels else None


def _by_letter(value: Any, _: ChoiceSet) -> int | None:
    letter = value.strip(" ().:").upper() if isinstance(value, str) else ""
    return ascii_uppercase.index(letter) if len(letter) == 1 and letter in ascii_uppercase else None


def _by_text(value: Any, choices: ChoiceSet) -> int | None:
    wanted = str(value).strip().casefold()
    found = [index for index, text in enumerate(choices.texts) if text.strip().casefold() == wanted]
    return found[0] if len(found) == 1 and not isinstance(value, bool) else None


def _by_bool(value: Any, choices: ChoiceSet) -> int | None:
    truth = str(value).strip().casefold()
    if truth not in ("true", "false"):
        return None
    wanted = _YES if truth == "true" else _NO
    found = [index for index, text in enumerate(choices.texts) if text.strip().casefold() in wanted]
    return found[0] if len(found) == 1 else None


def _by_number(value: Any, first: int) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if isinstance(value, bool) else str(value).strip()
    return int(text) - first if text.isascii() and text.isdigit() else None


_READINGS: Mapping[GoldKind, Callable[[Any, ChoiceSet], int | None]] = MappingProxyType(
    {
        "label": _by_label,
        "letter": _by_letter,
        "text": _by_text,
        "bool": _by_bool,
        "index0": lambda value, _: _by_number(value, 0),
        "index1": lambda value, _: _by_number(value, 1),
    }
)
