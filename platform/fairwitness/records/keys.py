"""Keys: hashes that are the same wherever the same work is named."""

from __future__ import annotations

from typing import Any

from fairwitness.config import fingerprint


def key_of(**parts: Any) -> str:
    """Hash of named JSON-like parts, 32 hexadecimal digits; the order of the parts plays no role.

    Example: `key_of(task_key=task_key, iteration=3)`.

    Raises:
        TypeError: A part is not made of text, numbers, booleans, None, lists, tuples and dicts with text keys.
    """
    return fingerprint(parts)
