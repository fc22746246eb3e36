"""A step in other words, in place of the step: which text, and which tokens in its context. Pure but for the tokenizer.

Only the new text is tokenised; every other id is one that the model generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from transformers import PreTrainedTokenizerBase

from fairwitness.errors import ItemError
from fairwitness.fur.baselines.altered import NotAltered
from fairwitness.fur.sets import CotStep
from fairwitness.fur.tasks import Ids
from fairwitness.lm.tokens import decode, encode, encode_continuation
from fairwitness.text.alignment import align_tokens
from fairwitness.text.segmentation import Span

_ANCHOR_TOKENS = (1, 2, 4, 8)


@dataclass(frozen=True)
class StepText:
    """What is to stand in place of a step.

    Attributes:
        text: The new text; None where there is none.
        source: Where it is from: a judge's name, a file and line, a rule.
        status: `skipped` or `failed`, where there is no text.
        reason: Why there is none.
    """

    text: str | None
    source: str
    status: str = "failed"
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class CotText:
    """A CoT, its steps and the characters of its tokens.

    Attributes:
        tokenizer: The tokenizer.
        prompt_ids: Prompt of the CoT.
        cot_ids: The CoT as generated.
        steps: Its steps.
        text: Its text.
        token_spans: The characters of each token in it.
        lead: White space that it begins with after the prompt, which some decoders drop at the start of a text.
    """

    tokenizer: PreTrainedTokenizerBase
    prompt_ids: Ids
    cot_ids: Ids
    steps: Sequence[CotStep]
    text: str
    token_spans: Sequence[Span]
    lead: str

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, prompt_ids: Ids, cot_ids: Ids, steps: Sequence[CotStep]) -> CotText:
        """Aligns the text of a CoT with its ids."""
        text, spans = align_tokens(partial(decode, tokenizer), cot_ids)
        after = decode(tokenizer, [*prompt_ids, *cot_ids])[len(decode(tokenizer, prompt_ids)) :]
        return cls(tokenizer, prompt_ids, cot_ids, steps, text, spans, after[: len(after) - len(after.lstrip())])

    def with_step(self, before: Ids, step: CotStep, text: str, *, is_last: bool = False) -> Ids:
        """The CoT up to the end of a step, with a new text for it.

        White space around the step stays as it was; within the new text, a run of it becomes one space.

        Args:
            before: What stands in the CoT before the step, as it is or as it was changed.
            step: The step; it has a token of its own.
            text: The new text.
            is_last: Leave out the white space after the step, so that the model writes what follows.

        Raises:
            ItemError: The tokenizer cannot write the text at this place.
        """
        spans = self.token_spans[step.token_start : step.token_end]
        old = self.text[spans[0].start : spans[-1].end]
        lead = self.lead if step.token_start == 0 else old[: len(old) - len(old.lstrip())]
        end = "" if is_last else old[len(old.rstrip()) :]
        new = f"{lead}{normal(text)}{end}"
        return (*before, *inserted(self.tokenizer, (*self.prompt_ids, *before), new))


def normal(text: str) -> str:
    """The text with every run of white space as one space, none at its ends."""
    return " ".join(text.split())


def unusable(step: CotStep, texts: Mapping[int, StepText], what: str) -> NotAltered | None:
    """Why a step is not changed, or None where there is a text that differs from it.

    Args:
        step: The step.
        texts: New texts by the index of their step.
        what: What the text is, for the reason: mistake or paraphrase.
    """
    if step.ineligible is not None:
        return NotAltered(step.index, "skipped", step.ineligible)
    new = texts.get(step.index)
    if new is None:
        return NotAltered(step.index, "skipped", f"no {what} is given for this step")
    if new.text is None:
        return NotAltered(step.index, new.status, new.reason or f"there is no {what}", None, new.source)
    if normal(new.text) == normal(step.text):
        reason = f"the {what} is identical to the original step ({new.source})"
        return NotAltered(step.index, "skipped", reason, normal(new.text), new.source)
    return None


def inserted(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], text: str) -> Ids:
    """Ids of a text that goes on after given ids, tokenised in that context.

    The text is tokenised after what the last ids say, whose own tokens must come out unchanged and are taken off.

    Args:
        tokenizer: The tokenizer.
        before: Ids that stay as they are; at least one.
        text: The text, with its leading white space.

    Raises:
        ItemError: No way of tokenising gives ids that read as the text after `before`.
    """
    wanted = decode(tokenizer, before) + text
    for ids in _candidates(tokenizer, before, text):
        if decode(tokenizer, [*before, *ids]) == wanted:
            return tuple(ids)
    raise ItemError(f"the tokenizer cannot write {text[:60]!r} at this place without changing what stands before it")


def _candidates(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], text: str) -> list[list[int]]:
    found = []
    for num in _ANCHOR_TOKENS:
        anchor = decode(tokenizer, before[-num:])
        anchor_ids, ids = encode(tokenizer, anchor), encode(tokenizer, anchor + text)
        if anchor_ids and ids[: len(anchor_ids)] == anchor_ids:
            found.append(ids[len(anchor_ids) :])
    return [*found, encode_continuation(tokenizer, text)]
