"""Filler tokens: as many tokens that say nothing in place of the CoT. Pure.

Source: Lanham et al. 2023, filler tokens; FUR, App. B ("substitutes the CoT with ellipsis tokens").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from fairwitness.fur.baselines.altered import Altered
from fairwitness.fur.tasks import Ids


def filler(cot_ids: Ids, filler_ids: Sequence[int], text: str) -> Altered:
    """The filler repeated to the length of the CoT in tokens.

    Args:
        cot_ids: The CoT as generated.
        filler_ids: Tokens of the filler; where it takes several, the last repetition may be cut.
        text: The filler.

    Raises:
        ValueError: The filler has no token.
    """
    if not filler_ids:
        raise ValueError("the filler has no token")
    return Altered(None, tuple(islice(cycle(filler_ids), len(cot_ids))), changed_text=text)
