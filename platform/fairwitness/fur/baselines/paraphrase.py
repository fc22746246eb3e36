"""Paraphrasing: the answer after a CoT whose first steps are said in other words. Pure but for the tokenizer.

Source: Lanham et al. 2023, paraphrasing; FUR, App. B and Table 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from fairwitness.errors import ItemError
from fairwitness.fur.baselines.add_mistake import with_mistakes
from fairwitness.fur.baselines.altered import Altered, NotAltered
from fairwitness.fur.baselines.config import Rest
from fairwitness.fur.baselines.step_texts import CotText, StepText, normal, unusable
from fairwitness.fur.tasks import Ids

PARAPHRASE = "paraphrase"


def with_paraphrases(
    cot: CotText, texts: Mapping[int, StepText], *, rest: Rest, changed: Literal["up_to", "one"]
) -> list[Altered | NotAltered]:
    """The CoT with the steps up to each one, or each one alone, paraphrased.

    With `up_to`, an earlier step that has no paraphrase (a list number, for instance) stays as it was.

    Args:
        cot: The CoT.
        texts: The paraphrased steps by index.
        rest: `continued`: the later steps go, and the model is to continue; `own`: they stay.
        changed: See `ParaphraseConfig.changed`.

    Returns:
        One per step; `skipped` and `failed` as in `with_mistakes`.
    """
    if changed == "one":
        return with_mistakes(cot, texts, rest=rest, what=PARAPHRASE)
    return list(_up_to(cot, texts, rest))


def _up_to(cot: CotText, texts: Mapping[int, StepText], rest: Rest) -> Iterator[Altered | NotAltered]:
    before: Ids = ()
    for step in cot.steps:
        own = (*before, *cot.cot_ids[step.token_start : step.token_end])
        problem = unusable(step, texts, PARAPHRASE)
        if problem is not None:
            before = own
            yield problem
            continue
        new = texts[step.index]
        assert new.text is not None
        shown, continued = normal(new.text), rest == "continued"
        try:
            ids = cot.with_step(before, step, new.text, is_last=continued)
            before = cot.with_step(before, step, new.text)
        except ItemError as error:
            before = own
            yield NotAltered(step.index, "failed", str(error), shown, new.source)
            continue
        rest_ids = () if continued else cot.cot_ids[step.token_end :]
        yield Altered(step.index, (*ids, *rest_ids), continued, shown, new.source)
