"""A judge without a model: it compares the choices that two CoTs state, or the answers given after them.

`stated` reads little, but that well. On the 376 published judgements of FUR (gpt-4o-mini) it finds a choice in both
CoTs of 40 pairs and agrees with the published verdict on all of these but one; the rest is `unclear` to it, where
the published judge decides each one. `answered` always has a verdict, but it is the model's own answer that it reads,
not the CoT's argument: for the pairs that are judged it says `different` exactly where the direct answer changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairwitness.followups.judging.pairs import judging_code
from fairwitness.records.keys import key_of
from fairwitness.text.conclusions import find_conclusion, only_choice

if TYPE_CHECKING:
    from fairwitness.followups.judging.pairs import CotPair, Row
    from fairwitness.judges.config import RulesConfig

RULES_CODE = "fairwitness.followups.judging.rules"


def rules_key(config: RulesConfig) -> str:
    """Hash of what verdicts depend on."""
    return key_of(reading=config.reading, code=judging_code(RULES_CODE))


def ruled(pair: CotPair, config: RulesConfig) -> Row:
    """Columns of a pair that rules judged: `unclear` where one side says nothing that the rule can read."""
    if config.reading == "answered":
        first, second = pair.letter_before, pair.letter_after
    else:
        first, second = (_stated(text, pair.problem.choices) for text in (pair.before, pair.after))
    is_read = first is not None and second is not None
    verdict = ("same" if first == second else "different") if is_read else "unclear"
    reply = f"before: {first or 'nothing read'}, after: {second or 'nothing read'}"
    return {"verdict": verdict, "reply": reply, "cost": 0.0, "from_cache": False, "status": "ok"}


def _stated(text: str, choices: tuple[str, ...]) -> str | None:
    """The conclusion that a CoT states, else the only choice that it names."""
    conclusion = find_conclusion(text, choices)
    return only_choice(text, choices) if conclusion is None else conclusion.letter
