"""Revisions of local models change exactly with the files that make the model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fairwitness.lm import source as digest


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "config.json").write_text("{}")
    return path


def test_same_files_same_revision_wherever_they_are(tmp_path: Path) -> None:
    first, second = _folder(tmp_path / "a"), _folder(tmp_path / "b")
    assert digest.folder_revision(first) == digest.folder_revision(second)
    (second / "notes.log").write_text("other files do not count")
    assert digest.folder_revision(first) == digest.folder_revision(second)


def test_weights_configuration_tokenizer_and_names_count(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "a")
    seen = [digest.folder_revision(folder)]
    (folder / "model.safetensors").write_bytes(b"weightz")
    seen.append(digest.folder_revision(folder))
    (folder / "config.json").write_text("{ }")
    seen.append(digest.folder_revision(folder))
    (folder / "tokenizer.json").write_text("{}")
    seen.append(digest.folder_revision(folder))
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    seen.append(digest.folder_revision(folder))
    assert len(set(seen)) == len(seen)
    assert all(len(revision) == len("sha256-") + 32 for revision in seen)


def test_small_file_is_hashed_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc" * 1000)
    assert digest.file_digest(file) == hashlib.sha256(b"abc" * 1000).hexdigest()


def test_large_file_is_sampled_at_both_ends_and_by_its_size(tmp_path: Path) -> None:
    file = tmp_path / "file"
    size = 200 * 1024 * 1024
    with file.open("wb") as stream:
        stream.truncate(size)
    seen = [digest.file_digest(file, full_limit_bytes=1000)]
    for position in (0, 1024 * 1024 - 1, size - 1, size):
        with file.open("r+b") as stream:
            stream.seek(position)
            stream.write(b"\x01")
        seen.append(digest.file_digest(file, full_limit_bytes=1000))
    assert len(set(seen)) == len(seen)
