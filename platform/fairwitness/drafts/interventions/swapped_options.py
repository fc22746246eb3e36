"""The concluded choice and another one change places. φ: the other letter. Not in the paper."""

from __future__ import annotations

from fairwitness.drafts.interventions.base import CHECK, CORRECTION, InsertionType, Intervention, Situation, listed


def _write(situation: Situation, insertion: InsertionType) -> str:
    choices = list(situation.choices)
    other = situation.letters.index(situation.other)
    choices[situation.index], choices[other] = choices[other], choices[situation.index]
    if insertion == "continue":
        return f"{CHECK} {listed(choices)}"
    return f"{CORRECTION} Two of the options were printed in each other's place. They read: {listed(choices)}"


def _phi(situation: Situation) -> frozenset[str]:
    return frozenset({situation.other})


SWAPPED_OPTIONS = Intervention("swapped_options", _write, _phi)
