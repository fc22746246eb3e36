"""Normalises the correct choice, however a data set writes it, to its index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, NamedTuple

from fairwitness.errors import DataError
from fairwitness.problems.choices import ChoiceSet
from fairwitness.problems.config import GoldKind

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
