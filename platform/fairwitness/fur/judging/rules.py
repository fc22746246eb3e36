"""A judge without a model: it compares the choices that two CoTs state, or the answers given after them.

`stated` reads little but reads it well. On the 376 published judgements of FUR (gpt-4o-mini) it finds a stated choice
in both CoTs of 37 pairs, and agrees with the published verdict on 36 of these; the rest is `unclear` to it. `answered`
always has a verdict, but it is the model's own answer that it reads, not the CoT's argument: for the pairs that are
judged it says `different` exactly where the direct answer changed.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import NamedTuple

from fairwitness.config import fingerprint
from fairwitness.fur.judging.pairs import CotPair
from fairwitness.judges.config import RulesConfig
from fairwitness.text.conclusion import stated_choice

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
    index = stated_choice(text, choices)
    return None if index is None else ascii_uppercase[index]
