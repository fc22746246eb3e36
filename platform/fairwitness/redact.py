"""Takes credentials out of what is shown or written down."""

from __future__ import annotations

import re
from typing import Any

_USERINFO = re.compile(r"(?<=://)[^/\s]+@")
_SECRET_IN_QUERY = re.compile(
    r"(?<=[?&;])([\w.~-]*(?:password|passwd|secret|token|key|credential)[\w.~-]*=)[^&;#\s'\"]+", re.IGNORECASE
)
_QUERY = re.compile(r"(?<=://)([^\s?#]+)\?[^\s#]*")
# The name of the environment variable that holds a key is no secret.
_SECRET_KEY = re.compile(r"password|passwd|secret|api_?key(?!_env$)|credential|(^|_)token$", re.IGNORECASE)
HIDDEN = "***"


def redact_text(text: str) -> str:
    """The text with `user:password@` removed from every URI in it, and the value of a `…?token=` hidden."""
    return _SECRET_IN_QUERY.sub(rf"\1{HIDDEN}", _USERINFO.sub("", text))


def redact(value: Any) -> Any:
    """A JSON-like value without credentials: those in URIs removed, text under a key such as `api_key` hidden."""
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(key, item) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_refused(key: str, value: Any) -> Any:
    """A refused setting as an error may show it: besides `redact`, URIs without query, and nothing under `…api_key…`.

    Whoever writes a key where the name of its variable belongs does not want to read it in a log.
    """
    if isinstance(value, str):
        return HIDDEN if "api_key" in key.lower() else _QUERY.sub(rf"\1?{HIDDEN}", redact_text(value))
    if isinstance(value, dict):
        return {name: redact_refused(str(name), redact({name: item})[name]) for name, item in value.items()}
    return redact(value)


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(value, str) and bool(_SECRET_KEY.search(str(key)))
