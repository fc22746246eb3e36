"""From a judge's reply to a verdict, strictly: one verdict of those asked for, or a reason why there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fairwitness.errors import ItemError

_THOUGHTS = re.compile(r"\A.*</think>", re.DOTALL)  # templates of thinking models open the block themselves
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
# Judges like to set the line in bold or as a list item.
_LINE = re.compile(r"^[\s>*_#-]*(?:final\s+)?verdict[\s*_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE)
_AROUND = " \t*_`\"'.!<>"

MAX_SHOWN_CHARS = 60


def parse_verdict(reply: str, verdicts: Sequence[str]) -> str:
    """The verdict of a reply: the value of a line `verdict: …`, or of the key `verdict` where the reply is JSON.

    Case, markdown around the word, and thoughts before a `</think>` play no role. The same verdict may be
    given several times. `verdicts` are those offered, in lower case.

    Raises:
        ItemError: There is no verdict, it is none of those offered, or the reply gives two different ones and so
            contradicts itself.
    """
    text = _THOUGHTS.sub("", reply).strip()
    given = list(dict.fromkeys(value.strip(_AROUND).lower() for value in _values(text)))
    offered = ", ".join(verdicts)
    if not given:
        raise ItemError(f"the reply has no line `verdict: …` with one of {offered}")
    known = [value for value in given if value in verdicts]
    if len(known) > 1:
        raise ItemError(f"the judge contradicts itself: its verdicts are {' and '.join(known)}")
    unknown = [value for value in given if value not in verdicts]
    if unknown:
        raise ItemError(f"verdict {_shown(unknown[0])} is none of {offered}")
    return known[0]


def _values(text: str) -> list[str]:
    fenced = _FENCE.match(text)
    body = fenced[1] if fenced else text
    pairs: list[tuple[str, Any]] = []

    def note(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs.extend(found)  # a dict alone would lose the first of two equal keys
        return dict(found)

    try:
        whole = json.loads(body, object_pairs_hook=note)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict):
        return [
            value if isinstance(value, str) else json.dumps(value) for name, value in pairs if name.lower() == "verdict"
        ]
    return _LINE.findall(body)


def _shown(value: str) -> str:
    return repr(value if len(value) <= MAX_SHOWN_CHARS else value[: MAX_SHOWN_CHARS - 1] + "…")
