"""Keys: hashes that are the same wherever the same work is named."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import fairwitness
from fairwitness.config import fingerprint

MEASURING_PACKAGES = ("text", "problems", "lm", "fur")
"""The packages whose code decides what a FUR measurement gives."""


def key_of(**parts: Any) -> str:
    """Hash of named JSON-like parts, 32 hexadecimal digits; the order of the parts plays no role.

    Example: `key_of(task_key=task_key, iteration=3)`.

    Raises:
        TypeError: A part is not made of text, numbers, booleans, None, lists, tuples and dicts with text keys.
    """
    return fingerprint(parts)


@functools.cache
def code_revision(packages: tuple[str, ...] = MEASURING_PACKAGES) -> str:
    """Hash of the source files of our packages, the same from a checkout, a wheel and on a worker; no git needed.

    Any change of a file, of a comment too, gives another revision and so other keys.

    Args:
        packages: Names of packages below `fairwitness`.

    Raises:
        ValueError: A package has no source files.
    """
    root = Path(fairwitness.__file__).parent
    digest = hashlib.sha256()
    for package in sorted(packages):
        sources = sorted((root / package).rglob("*.py"))
        if not sources:
            raise ValueError(f"there are no source files of fairwitness.{package}")
        for source in sources:
            content = source.read_bytes()
            digest.update(f"{source.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:32]
