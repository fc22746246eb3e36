"""The answer after a changed CoT: cut off, filled up, with a mistake in a step, or with steps in other words.

Pure but for the tokenizer. Source: Lanham et al. 2023; FUR, App. B, App. G and Table 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from string import ascii_uppercase
from typing import TYPE_CHECKING, Literal

from transformers import PreTrainedTokenizerBase

from fairwitness.chains.items import CotOutcome, CotRequest, Ids, Question
from fairwitness.chains.steps import CotStep
from fairwitness.errors import ItemError
from fairwitness.followups.baselines.rows import NotAltered, Row
from fairwitness.followups.config import (
    AddMistakeConfig,
    BaselineConfig,
    EarlyAnsweringConfig,
    FillerTokensConfig,
    ParaphraseConfig,
    Rest,
)
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.lm.tokens import decode, encode, encode_continuation
from fairwitness.text.alignment import align_tokens
from fairwitness.text.segmentation import Span

if TYPE_CHECKING:
    from fairwitness.chains.cots import CotRecord
    from fairwitness.chains.study import ChainStudy


@dataclass(frozen=True)
class Altered:
    """A changed CoT.

    Attributes:
        cot_step_index: The step that is changed, or the first one left out; None where the whole CoT is replaced.
        ids: The changed CoT, or its beginning. Ids of the model's own steps are those that it generated.
        continues: Whether the model goes on from `ids` before it answers.
        changed_text: The step as changed, or what stands for the CoT.
        source: Where that text is from; None where it is nobody's.
    """

    cot_step_index: int | None
    ids: Ids
    continues: bool = False
    changed_text: str | None = None
    source: str | None = None


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


def answer_requests(
    study: ChainStudy, config: BaselineConfig, record: CotRecord, texts: Mapping[int, StepText]
) -> Iterator[tuple[Altered | None, Question | CotRequest | NotAltered]]:
    """The changed CoTs of a baseline with what the engine is asked after each, or why it is not; one per place.

    Args:
        study: The study.
        config: The baseline's settings.
        record: A problem with a CoT.
        texts: Its changed steps, for the baselines that need them.
    """
    for one in _changed_cots(study, config, record, texts):
        if isinstance(one, NotAltered):
            yield None, one
        else:
            yield one, _answer_request(study, record, one)


def _changed_cots(
    study: ChainStudy, config: BaselineConfig, record: CotRecord, texts: Mapping[int, StepText]
) -> Sequence[Altered | NotAltered]:
    tokenizer = study.encoder.tokenizer
    match config:
        case EarlyAnsweringConfig():
            return early_answers(partial(decode, tokenizer), record.cot_ids, record.steps)
        case FillerTokensConfig():
            return [filler(record.cot_ids, encode_continuation(tokenizer, config.text), config.text)]
    cot = CotText.of(tokenizer, record.prompt_ids, record.cot_ids, record.steps)
    if isinstance(config, AddMistakeConfig):
        return with_mistakes(cot, texts, rest=config.rest)
    assert isinstance(config, ParaphraseConfig)
    return with_paraphrases(cot, texts, rest=config.rest, changed=config.changed)


def _answer_request(study: ChainStudy, record: CotRecord, altered: Altered) -> Question | CotRequest | NotAltered:
    suffix = tuple(study.encoder.cot_answer_suffix_ids)
    letters = tuple(study.encoder.letter_ids(len(record.problem.choices), "cot_answer"))
    begun = (*record.prompt_ids, *altered.ids)
    length, context = len(begun) + len(suffix), study.facts.context_length
    if length > context:
        reason = f"prompt, changed CoT and question have {length} tokens, the model's context holds {context}"
        return NotAltered(altered.cot_step_index, "failed", reason, altered.changed_text, altered.source)
    if altered.continues:
        return CotRequest(begun, suffix, letters, len(altered.ids))
    return Question((*begun, *suffix), letters)


def answer_columns(study: ChainStudy, record: CotRecord, altered: Altered, outcome: LetterAnswer | CotOutcome) -> Row:
    """Columns of the answer after a changed CoT."""
    continued, answer = (outcome.ids, outcome.answer) if isinstance(outcome, CotOutcome) else ((), outcome)
    assert answer is not None
    assert record.given_cot is not None
    return {
        "cot_text": decode(study.encoder.tokenizer, [*altered.ids, *continued]),
        "predicted_letter": ascii_uppercase[answer.index],
        "probs": list(answer.probs),
        "letter_mass": answer.mass,
        "flipped": answer.index != record.given_cot.index,
        "status": "ok",
    }


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
    return [
        unusable(step, texts, what) or _changed(cot, cot.cot_ids[: step.token_start], step, texts[step.index], rest)
        for step in cot.steps
    ]


def _changed(cot: CotText, before: Ids, step: CotStep, new: StepText, rest: Rest) -> Altered | NotAltered:
    assert new.text is not None
    shown, continues = normal(new.text), rest == "continued"
    try:
        ids = cot.with_step(before, step, new.text, is_last=continues)
    except ItemError as error:
        return NotAltered(step.index, "failed", str(error), shown, new.source)
    rest_ids = () if continues else cot.cot_ids[step.token_end :]
    return Altered(step.index, (*ids, *rest_ids), continues, shown, new.source)


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
        one = unusable(step, texts, PARAPHRASE) or _changed(cot, before, step, texts[step.index], rest)
        # The later steps follow this one as it is said now, its white space included; "own" has written it so.
        whole = (
            one
            if rest == "own" or isinstance(one, NotAltered)
            else _changed(cot, before, step, texts[step.index], "own")
        )
        if isinstance(whole, NotAltered):
            one, before = whole, (*before, *cot.cot_ids[step.token_start : step.token_end])
        else:
            before = whole.ids[: len(whole.ids) - len(cot.cot_ids[step.token_end :])]
        yield one
