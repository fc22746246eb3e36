"""Early answering: the answer after the first steps alone. Pure.

Source: Lanham et al. 2023, early answering; FUR, App. B ("truncates the CoT").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairwitness.fur.baselines.altered import Altered, NotAltered
from fairwitness.fur.sets import CotStep
from fairwitness.fur.tasks import Ids


def early_answers(
    decode: Callable[[Sequence[int]], str], cot_ids: Ids, steps: Sequence[CotStep]
) -> list[Altered | NotAltered]:
    """The CoT before each step: before the first one there is none, before the last one only that is missing.

    Tokens of white space only at the end of what is kept go, as they do at the end of a generated CoT.

    Args:
        decode: Decodes ids to text.
        cot_ids: The CoT as generated.
        steps: Its steps.

    Returns:
        One per step, its index that of the first step left out. A step that has no token of its own cannot be left out
        alone and is `skipped`. No steps give an empty list.
    """
    return [_before(decode, cot_ids, step) for step in steps]


def _before(decode: Callable[[Sequence[int]], str], cot_ids: Ids, step: CotStep) -> Altered | NotAltered:
    if step.token_end <= step.token_start:
        return NotAltered(step.index, "skipped", "no token of its own")
    end = step.token_start
    while end and not decode(cot_ids[end - 1 : end]).strip():
        end -= 1
    return Altered(step.index, cot_ids[:end])
