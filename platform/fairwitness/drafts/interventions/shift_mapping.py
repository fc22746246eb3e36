"""Every choice moves up by one letter, the first to the last place. φ: the letter that the concluded text now has."""

from __future__ import annotations

from fairwitness.drafts.interventions.base import CHECK, CORRECTION, InsertionType, Intervention, Situation, listed


def _write(situation: Situation, insertion: InsertionType) -> str:
    options = listed((*situation.choices[1:], situation.choices[0]))
    if insertion == "continue":
        return f"{CHECK} {options}"
    return (
        f"{CORRECTION} The options were printed under wrong letters; with the right ones they read: {options} "
        "From here on I use these."
    )


def _phi(situation: Situation) -> frozenset[str]:
    return frozenset({situation.letters[situation.index - 1]})


SHIFT_MAPPING = Intervention("shift_mapping", _write, _phi)
