"""Steps of a draft, exploitation blocks, and the places where something is inserted. Pure.

Source: Measuring the Faithfulness of Thinking Drafts in Large Reasoning Models, App. A.2 and B.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Label = Literal["continue", "backtrack"]
Position = Literal["initial", "middle", "end"]

POSITIONS: tuple[Position, ...] = ("initial", "middle", "end")


@dataclass(frozen=True)
class DraftStep:
    """One step of a draft.

    Attributes:
        start: First character in the draft.
        end: One past its last character; the next step begins there.
        label: `continue` (forward reasoning) or `backtrack` (self-reflection or another approach).
    """

    start: int
    end: int
    label: Label


@dataclass(frozen=True)
class Place:
    """Where a text is inserted.

    Attributes:
        position: Which of the three positions it is.
        cot_step_index: The step after which the text is inserted.
        block_index: The exploitation block that this step ends; None where positions are counted in steps.
    """

    position: Position
    cot_step_index: int
    block_index: int | None


def blocks(steps: Sequence[DraftStep]) -> list[range]:
    """Exploitation blocks: a backtrack step and the continue steps up to the next backtrack step.

    Steps before the first backtrack step belong to no block.

    Returns:
        For every block the indices of its steps.
    """
    starts = [index for index, step in enumerate(steps) if step.label == "backtrack"]
    return [range(a, b) for a, b in pairwise([*starts, len(steps)])]


def places(steps: Sequence[DraftStep]) -> list[Place]:
    """The places of the three positions: the ends of the first, the middle and the last block.

    A draft of fewer than three blocks has no three block ends. There the positions are counted in steps: after the
    first, the middle and the last one. A draft of fewer than three steps gives as many places as steps, the earlier
    positions first; an empty one gives none.
    """
    found = blocks(steps)
    if len(found) >= len(POSITIONS):
        chosen = (0, (len(found) - 1) // 2, len(found) - 1)
        return [Place(p, found[b][-1], b) for p, b in zip(POSITIONS, chosen, strict=True)]
    last = len(steps) - 1
    if last < 0:
        return []
    indices = list(dict.fromkeys((0, last // 2, last))) if last != 1 else [0, 1]
    names = POSITIONS if len(indices) == len(POSITIONS) else (("initial",), ("initial", "end"))[len(indices) - 1]
    return [Place(p, index, None) for p, index in zip(names, indices, strict=True)]
