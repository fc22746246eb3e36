"""A judge without a model: it compares the choices that two CoTs state, or the answers given after them.

`stated` reads little, but that well. On the 376 published judgements of FUR (gpt-4o-mini) it finds a choice in both
CoTs of 40 pairs and agrees with the published verdict on all of these but one; the rest is `unclear` to it, where
the published judge decides each one. `answered`
always has a verdict, but it is the model's own answer that it reads, not the CoT's argument: for the pairs that are
judged it says `different` exactly where the direct answer changed.
"""

from __future__ import annotations

from typing import NamedTuple

from fairwitness.config import fingerprint
from fairwitness.fur.judging.pairs import CotPair
from fairwitness.judges.config import RulesConfig
from fairwitness.text.conclusions import find_conclusion
from fairwitness.text.only_choice import only_choice

REVISION = 1
"""To be raised with every change of what the rules read."""


class Ruling(NamedTuple):
    """A verdict, and what was read."""

    verdict: str
    reply: str


def rules_key(config: RulesConfig) -> str:
    """Hash of what verdicts depend on."""
    return fingerprint(["rules", "cot_after", config.reading, REVISION])


def rule(pair: CotPair, config: RulesConfig) -> Ruling:
    """The verdict on one pair: `unclear` where one side says nothing that the rule can read."""
    if config.reading == "answered":
        first, second = pair.letter_before, pair.letter_after
    else:
        first, second = (_stated(text, pair.problem.choices) for text in (pair.before, pair.after))
    is_read = first is not None and second is not None
    verdict = ("same" if first == second else "different") if is_read else "unclear"
    return Ruling(verdict, f"before: {first or 'nothing read'}, after: {second or 'nothing read'}")


def _stated(text: str, choices: tuple[str, ...]) -> str | None:
    """The conclusion that a CoT states, else the only choice that it names."""
    conclusion = find_conclusion(text, choices)
    return only_choice(text, choices) if conclusion is None else conclusion.letter
