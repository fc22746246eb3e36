"""Rewrites the steps of the organism's CoTs: another value is a mistake, another wording a paraphrase.

Every step states one fact of a person or a village in one of the wordings of `lexicon`, so that what a mistake and what
a paraphrase of it are is known by construction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from fairwitness.organisms.lexicon import ATTRIBUTES, RIVER, Attribute
from fairwitness.problems.problem import Problem


class Stated(NamedTuple):
    """The fact that a step states."""

    attribute: Attribute
    name: str
    value: str
    wording: str


def rewrite(
    problem: Problem, text: str, purpose: Literal["mistake", "paraphrase"], rng: np.random.Generator
) -> str | None:
    """A step with a mistake, or in other words.

    A mistake keeps the wording and states another value of the same attribute: another choice of the problem where the
    value is one, else any other. A paraphrase states the same fact in another wording that the model was trained on.

    Args:
        problem: The problem.
        text: The step.
        purpose: Which of the two.
        rng: Draws the value or the wording.

    Returns:
        The new step; None where the step is not one statement of a fact.
    """
    stated = stated_fact(text)
    if stated is None:
        return None
    if purpose == "paraphrase":
        others = [wording for wording in stated.attribute.statements if wording != stated.wording]
        return others[int(rng.integers(len(others)))].format(name=stated.name, value=stated.value)
    choices = problem.choices if stated.value in problem.choices else stated.attribute.values
    values = [value for value in choices if value != stated.value]
    return stated.wording.format(name=stated.name, value=values[int(rng.integers(len(values)))])


def stated_fact(text: str) -> Stated | None:
    """The fact that a text states and nothing else, white space at its ends aside; None where it does not."""
    return next(_readings(text.strip()), None)


def _readings(text: str) -> Iterator[Stated]:
    for attribute in (*ATTRIBUTES, RIVER):
        for wording in attribute.statements:
            pattern = re.escape(wording).replace(r"\{name\}", r"(?P<name>\w+)").replace(r"\{value\}", r"(?P<value>\w+)")
            found = re.fullmatch(pattern, text)
            if found and found["value"] in attribute.values:
                yield Stated(attribute, found["name"], found["value"], wording)
