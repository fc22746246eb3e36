from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairwitness
from fairwitness.records.keys import MEASURING_PACKAGES, code_revision, key_of


def test_a_key_depends_on_names_and_values_but_not_on_order() -> None:
    assert key_of(a=1, b="x") == key_of(b="x", a=1)
    assert len({key_of(a=1), key_of(a=2), key_of(b=1), key_of(a="1"), key_of(a=[1]), key_of(a=1.0)}) == 6
    assert key_of(ids=(1, 2)) == key_of(ids=[1, 2])


def test_a_key_is_the_same_in_another_process() -> None:
    code = "from fairwitness.records.keys import key_of; print(key_of(a=1, lr=1e-5, t='é'), end='')"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"]
    other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert other.stdout == key_of(a=1, lr=1e-5, t="é")


def test_a_part_that_has_no_stable_text_is_refused() -> None:
    with pytest.raises(TypeError):
        key_of(a=object())


def test_code_revision_changes_with_any_source_file_of_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "fairwitness"
    for package in ("text", "records"):
        shutil.copytree(Path(fairwitness.__file__).parent / package, copy / package)
    (copy / "__init__.py").write_text("")
    here = code_revision(("text",))
    monkeypatch.setattr(fairwitness, "__file__", str(copy / "__init__.py"))

    def revision(*packages: str) -> str:
        code_revision.cache_clear()
        return code_revision(packages)

    assert revision("text") == here
    (copy / "records" / "keys.py").write_text("")
    (copy / "text" / "notes.md").write_text("not a source file")
    assert revision("text") == here
    (copy / "text" / "more.py").write_text("")
    renamed = revision("text")
    (copy / "text" / "more.py").rename(copy / "text" / "other.py")
    assert len({here, renamed, revision("text")}) == 3
    code_revision.cache_clear()


def test_the_measuring_packages_exist() -> None:
    assert len(code_revision(MEASURING_PACKAGES)) == 32
    with pytest.raises(ValueError, match=r"fairwitness\.nowhere"):
        code_revision(("nowhere",))
