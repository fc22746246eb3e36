"""Adding mistakes: the answer after a CoT with a mistake in one step. Pure but for the tokenizer.

Source: Lanham et al. 2023, adding mistakes; FUR, App. G, where the other steps stay ("in place of the original step").
"""

from __future__ import annotations

from collections.abc import Mapping

from fairwitness.errors import ItemError
from fairwitness.fur.baselines.altered import Altered, NotAltered
from fairwitness.fur.baselines.config import Rest
from fairwitness.fur.baselines.step_texts import CotText, StepText, normal, unusable
from fairwitness.fur.sets import CotStep

MISTAKE = "mistake"


def with_mistakes(
    cot: CotText, texts: Mapping[int, StepText], *, rest: Rest, what: str = MISTAKE
) -> list[Altered | NotAltered]:
    """The CoT with one step changed, for every step.

    Args:
        cot: The CoT.
        texts: The mistaken steps by index.
        rest: `own`: the later steps stay; `continued`: they go, and the model is to continue.
        what: What the text is, for reasons.

    Returns:
        One per step. A step that cannot be unlearned, has no text, or whose text is the step itself is `skipped`; one
        whose text cannot be had or written is `failed`.
    """
    return [unusable(step, texts, what) or _changed(cot, step, texts[step.index], rest) for step in cot.steps]


def _changed(cot: CotText, step: CotStep, new: StepText, rest: Rest) -> Altered | NotAltered:
    assert new.text is not None
    shown = normal(new.text)
    try:
        ids = cot.with_step(cot.cot_ids[: step.token_start], step, new.text, is_last=rest == "continued")
    except ItemError as error:
        return NotAltered(step.index, "failed", str(error), shown, new.source)
    if rest == "continued":
        return Altered(step.index, ids, True, shown, new.source)
    return Altered(step.index, (*ids, *cot.cot_ids[step.token_end :]), False, shown, new.source)
