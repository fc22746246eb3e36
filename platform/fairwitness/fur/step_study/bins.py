"""Bins of ff-soft and the draw of steps for raters. Pure.

Source: FUR, App. J. The paper bins by the shift of largest absolute value over the iterations (its published code);
here ff-soft is the one at the final iteration, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from fairwitness.problems.draws import item_rng

Bin = Literal["negative", "neutral", "moderate", "high"]
BINS: tuple[Bin, ...] = get_args(Bin)
"""From probability given to the answer to probability taken from it."""

NEGATIVE_UP_TO = -0.25
MODERATE_FROM = 0.25
HIGH_FROM = 0.5

PAPER_COUNTS: Mapping[Bin, int] = MappingProxyType({"high": 15, "moderate": 5, "negative": 5})
"""Steps drawn per model and data set (FUR, App. J)."""


@dataclass(frozen=True)
class Candidate:
    """A step that can be drawn.

    Attributes:
        problem_id: Its problem.
        cot_step_index: Its position in the CoT, from 0.
        ff_soft: Probability that its unlearning took from the answer, -1 to 1.
    """

    problem_id: str
    cot_step_index: int
    ff_soft: float


@dataclass(frozen=True)
class Drawn:
    """What was drawn from one bin.

    Attributes:
        bin: The bin.
        wanted: How many were asked for.
        available: How many steps the bin has.
        chosen: The steps drawn, `min(wanted, available)` of them.
    """

    bin: Bin
    wanted: int
    available: int
    chosen: tuple[Candidate, ...]

    @property
    def is_short(self) -> bool:
        """Whether there were fewer than asked for."""
        return len(self.chosen) < self.wanted


def bin_of(ff_soft: float) -> Bin:
    """The bin of an ff-soft: negative ≤ -0.25 < neutral < 0.25 ≤ moderate < 0.5 ≤ high.

    Raises:
        ValueError: It is not a number from -1 to 1.
    """
    if not -1 <= ff_soft <= 1:
        raise ValueError(f"ff-soft {ff_soft} is not between -1 and 1")
    if ff_soft <= NEGATIVE_UP_TO:
        return "negative"
    if ff_soft < MODERATE_FROM:
        return "neutral"
    return "moderate" if ff_soft < HIGH_FROM else "high"


def draw(candidates: Sequence[Candidate], wanted: Mapping[Bin, int], *, seed: int, group: str) -> list[Drawn]:
    """Draws steps from each bin without replacement; several may belong to one problem.

    The draw depends on the seed, the group and the steps, not on their order.

    Args:
        candidates: The steps of one model on one data set, each once.
        wanted: How many per bin; a bin left out gives none.
        seed: Seed of the draw.
        group: Name of model and data set.

    Returns:
        An entry per bin of `wanted`, in the order of `BINS`.
    """
    ordered = sorted(candidates, key=lambda step: (step.problem_id, step.cot_step_index))
    drawn = []
    for name in (name for name in BINS if name in wanted):
        inside = [step for step in ordered if bin_of(step.ff_soft) == name]
        order = item_rng(seed, "step study", group, name).permutation(len(inside))[: wanted[name]]
        drawn.append(Drawn(name, wanted[name], len(inside), tuple(inside[i] for i in order)))
    return drawn
