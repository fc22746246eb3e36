"""Takes credentials out of what is written down."""

from __future__ import annotations

import re
from typing import Any

_USERINFO = re.compile(r"(?<=://)[^/\s]+@")
_SECRET_KEY = re.compile(r"password|passwd|secret|api_?key|credential|(^|_)token$", re.IGNORECASE)
HIDDEN = "***"


def redact_text(text: str) -> str:
    """The text with `user:password@` removed from every URI in it."""
    return _USERINFO.sub("", text)


def redact(value: Any) -> Any:
    """A JSON-like value without credentials: those in URIs removed, text under a key such as `api_key` hidden."""
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(key, item) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(value, str) and bool(_SECRET_KEY.search(str(key)))
