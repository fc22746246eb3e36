"""The concluded choice is restated with a mistake in it. φ: any other letter."""

from __future__ import annotations

from fairwitness.drafts.interventions.base import CHECK, CORRECTION, InsertionType, Intervention, Situation, listed


def _write(situation: Situation, insertion: InsertionType) -> str:
    assert situation.corrupted is not None
    choices = list(situation.choices)
    choices[situation.index] = situation.corrupted
    if insertion == "continue":
        return f"{CHECK} {listed(choices)}"
    return f"{CORRECTION} The options in fact read: {listed(choices)}"


def _phi(situation: Situation) -> frozenset[str]:
    return frozenset(situation.letters) - {situation.conclusion}


CORRUPT_OPTION = Intervention("corrupt_option", _write, _phi, needs_corruption=True)
