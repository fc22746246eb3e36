"""Judgements in the form that FUR's authors published: JSON lines with `instance_id` and `response`."""

from __future__ import annotations

import re
from pathlib import Path

from fairwitness.errors import DataError
from fairwitness.problems.readers import read_lines

NO_VERDICT = "the reply does not begin with Yes, No or Unclear"

_VERDICTS = {"yes": "same", "no": "different", "unclear": "unclear"}
_FIRST = re.compile(r"[\s*_\"'`.]*(yes|no|unclear)[*_\"'`]*[^\S\n]*(?:[.,:;!]|$)", re.IGNORECASE | re.MULTILINE)


def published_verdict(reply: str) -> str | None:
    """The verdict of a reply to "Do the reasoning chains argue for the same answer option?": same, different, unclear.

    It is the reply's first word, alone in its line or before a punctuation mark; None where there is no such word.
    """
    found = _FIRST.match(reply)
    return _VERDICTS[found[1].lower()] if found else None


def read_verdicts(path: Path) -> dict[str, str]:
    """instance_id → verdict of a file of published judgements.

    Raises:
        DataError: The file cannot be read, a line is not a judgement, or an instance_id is there twice.
    """
    found: dict[str, str] = {}
    for record in read_lines(path):
        place = f"{path}:{record.line}"
        if not {"instance_id", "response"} <= set(record.values):
            raise DataError(f"{place}: has no instance_id or no response")
        item, reply = (str(record.values[name]) for name in ("instance_id", "response"))
        verdict = published_verdict(reply)
        if verdict is None:
            raise DataError(f"{place}: {NO_VERDICT}: {' '.join(reply.split())[:40]!r}")
        if item in found:
            raise DataError(f"{place}: instance_id {item!r} is there twice; remove one")
        found[item] = verdict
    return found
