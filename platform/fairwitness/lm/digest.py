"""Hashes of files that name a model's revision."""

from __future__ import annotations

import hashlib
from pathlib import Path

FULL_HASH_LIMIT_BYTES = 2 * 1024**3
_BLOCK_BYTES = 1024**2
_NUM_SAMPLED_BLOCKS = 64
_HASHED_SUFFIXES = {".safetensors", ".json", ".txt", ".model", ".jinja", ".py", ".tiktoken"}


def folder_revision(folder: Path) -> str:
    """Revision of a local model: `sha256-` and 32 hexadecimal digits over names and contents of its files.

    Weights, configuration and tokenizer files at the top of the folder count; other files do not. A file above 2 GiB
    counts by its size and 64 sampled blocks of 1 MiB, the first (with the safetensors header) and the last among
    them: a change between the sampled blocks goes unseen.
    """
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in _HASHED_SUFFIXES:
            total.update(f"{path.name}\0{file_digest(path)}\n".encode())
    return f"sha256-{total.hexdigest()[:32]}"


def file_digest(path: Path, *, full_limit_bytes: int = FULL_HASH_LIMIT_BYTES) -> str:
    """SHA-256 of a file; above the limit, of its size and of sampled blocks (see `folder_revision`)."""
    size = path.stat().st_size
    if size <= full_limit_bytes:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256(str(size).encode())
    last_start = size - _BLOCK_BYTES
    with path.open("rb") as file:
        for index in range(_NUM_SAMPLED_BLOCKS):
            file.seek(max(0, last_start * index // (_NUM_SAMPLED_BLOCKS - 1)))
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()
