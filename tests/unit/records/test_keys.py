from __future__ import annotations

import subprocess
import sys

import pytest

from fairwitness.records.keys import key_of


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
