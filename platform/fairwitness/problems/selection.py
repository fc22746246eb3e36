"""Draws which problems are measured and which are held out."""

from __future__ import annotations

from typing import NamedTuple

from fairwitness.errors import DataError
from fairwitness.problems.mapping import draw_number
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems


class Selection(NamedTuple):
    """Two disjoint draws from one data set.

    Attributes:
        measured: Problems whose CoT steps are unlearned.
        held_out: Problems on which specificity is measured.
    """

    measured: tuple[Problem, ...]
    held_out: tuple[Problem, ...]


def select(loaded: LoadedProblems, *, num_problems: int | None, num_held_out: int, seed: int) -> Selection:
    """Draws held-out and measured problems by seed and problem id.

    The order of the source has no influence. The held-out problems do not depend on `num_problems`, and a larger
    `num_problems` adds to the measured ones without exchanging any.

    Args:
        loaded: The data set.
        num_problems: How many to measure; None takes all that are not held out.
        num_held_out: How many to hold out.
        seed: Run seed.

    Raises:
        DataError: There are not enough problems for both.
    """
    available = len(loaded.problems)
    needed = num_held_out + (num_problems or 1)
    if available < needed:
        raise DataError(_too_few(loaded, num_problems, num_held_out))
    ranked = sorted(
        loaded.problems,
        key=lambda problem: (draw_number(seed, loaded.name, problem.problem_id), problem.problem_id),
    )
    end = None if num_problems is None else needed
    return Selection(measured=tuple(ranked[num_held_out:end]), held_out=tuple(ranked[:num_held_out]))


def _too_few(loaded: LoadedProblems, num_problems: int | None, num_held_out: int) -> str:
    available = len(loaded.problems)
    asked = "at least one" if num_problems is None else str(num_problems)
    ways = ["give a larger data set"]
    if available > (num_problems or 1):
        ways.append(f"set num_held_out to at most {available - (num_problems or 1)}")
    if num_problems is not None and available > num_held_out:
        ways.append(f"set num_problems to at most {available - num_held_out}")
    refused = f" ({len(loaded.refused)} records were refused)" if loaded.refused else ""
    return (
        f"{loaded.name}: {available} problems{refused} are too few for {num_held_out} held-out problems and {asked} to "
        f"measure; {', or '.join(ways)}"
    )
