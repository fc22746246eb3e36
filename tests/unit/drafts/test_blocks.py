"""Exploitation blocks and the places of the three positions, worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.drafts.config import POSITIONS
from fairwitness.drafts.steps import DraftStep, blocks, places


def steps(labels: str) -> list[DraftStep]:
    """One character a step: b is a backtrack step, any other a continue step."""
    return [DraftStep(i, i + 1, "backtrack" if label == "b" else "continue") for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", []),
        ("cc", []),
        ("ccbc", [(2, 3)]),
        ("bcbbc", [(0, 1), (2,), (3, 4)]),
    ],
)
def test_blocks(labels: str, expected: list[tuple[int, ...]]) -> None:
    assert [tuple(block) for block in blocks(steps(labels))] == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", []),
        ("c", [("initial", 0, None)]),
        ("cc", [("initial", 0, None), ("end", 1, None)]),
        ("ccc", [("initial", 0, None), ("middle", 1, None), ("end", 2, None)]),
        ("cbcbc", [("initial", 0, None), ("middle", 2, None), ("end", 4, None)]),
        ("cbcbcb", [("initial", 2, 0), ("middle", 4, 1), ("end", 5, 2)]),
        ("bbbb", [("initial", 0, 0), ("middle", 1, 1), ("end", 3, 3)]),
    ],
)
def test_places(labels: str, expected: list[tuple[str, int, int | None]]) -> None:
    assert [(p.position, p.cot_step_index, p.block_index) for p in places(steps(labels))] == expected


@given(st.text(alphabet="bc", max_size=30))
def test_places_are_different_steps_in_order(labels: str) -> None:
    found = places(steps(labels))
    indices = [place.cot_step_index for place in found]
    assert indices == sorted(set(indices))
    assert len(found) == min(len(labels), len(POSITIONS))


@given(st.text(alphabet="bc", max_size=30))
def test_every_step_from_the_first_backtrack_on_is_in_one_block(labels: str) -> None:
    found = [index for block in blocks(steps(labels)) for index in block]
    assert found == list(range(labels.find("b"), len(labels))) if "b" in labels else found == []
