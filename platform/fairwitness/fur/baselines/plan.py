"""Which measurements a baseline makes of a problem, and the rows of those that it cannot make. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fairwitness.errors import ItemError
from fairwitness.fur.baselines.add_mistake import with_mistakes
from fairwitness.fur.baselines.altered import Altered, NotAltered
from fairwitness.fur.baselines.config import (
    AddMistakeConfig,
    BaselineConfig,
    CcShapConfig,
    EarlyAnsweringConfig,
    FillerTokensConfig,
    ParaphraseConfig,
)
from fairwitness.fur.baselines.early_answering import early_answers
from fairwitness.fur.baselines.filler_tokens import filler
from fairwitness.fur.baselines.paraphrase import with_paraphrases
from fairwitness.fur.baselines.question_tokens import mask_token, question_tokens
from fairwitness.fur.baselines.step_texts import CotText, StepText
from fairwitness.fur.baselines.writers import Purpose, StepWriter
from fairwitness.fur.cots import CotRecord
from fairwitness.fur.items import CotRequest, ShapRequest
from fairwitness.fur.study import Study
from fairwitness.fur.tasks import Question
from fairwitness.lm.tokens import decode, encode_continuation
from fairwitness.problems.draws import item_rng

PURPOSES: Mapping[str, Purpose] = {"add_mistake": "mistake", "paraphrase": "paraphrase"}
"""What the baselines that change the words of steps need."""


@dataclass(frozen=True)
class Baseline:
    """One baseline of a job.

    Attributes:
        config: Its settings.
        key: Hash of them, of where its texts are from, and of the code.
        writer: Writes its texts; None where it needs none.
    """

    config: BaselineConfig
    key: str
    writer: StepWriter | None

    @property
    def name(self) -> str:
        """Which one it is."""
        return self.config.kind


@dataclass(frozen=True)
class Work:
    """One measurement: the problem, what is done to its CoT (None: nothing, it is explained), what the engine gets."""

    baseline: Baseline
    record: CotRecord
    altered: Altered | None
    request: Question | CotRequest | ShapRequest

    @property
    def cot_step_index(self) -> int | None:
        """The step that is changed or left out; None where the CoT as a whole is."""
        return None if self.altered is None else self.altered.cot_step_index

    @property
    def num_tokens(self) -> int:
        """Length, for batches of similar length."""
        match self.request:
            case Question():
                return len(self.request.ids)
            case CotRequest():
                return len(self.request.prompt)
        return len(self.request.cot_prompt) + len(self.request.cot_ids)

    @property
    def weight(self) -> float:
        """How much it takes, in tokens; for CC-SHAP in tokens of all masked prompts at most."""
        config = self.baseline.config
        return float(self.num_tokens * (config.max_evaluations if isinstance(config, CcShapConfig) else 1))


def step_indices(config: BaselineConfig, record: CotRecord) -> list[int | None]:
    """The places in a CoT that the baseline has a row for; `[None]` where it takes the CoT as a whole."""
    whole = isinstance(config, FillerTokensConfig | CcShapConfig)
    return [None] if whole else [step.index for step in record.steps]


def plan_problem(
    study: Study, baseline: Baseline, record: CotRecord, texts: Mapping[int, StepText]
) -> list[Work | NotAltered]:
    """Everything that the baseline measures of one CoT, or why not; one per place of `step_indices`.

    Args:
        study: The study.
        baseline: The baseline.
        record: A problem with a CoT.
        texts: Its changed steps, for the baselines that need them.
    """
    if isinstance(baseline.config, CcShapConfig):
        return [_explained(study, baseline, record)]
    changed = _changed(study, baseline.config, record, texts)
    return [one if isinstance(one, NotAltered) else _answered(study, baseline, record, one) for one in changed]


def _changed(
    study: Study, config: BaselineConfig, record: CotRecord, texts: Mapping[int, StepText]
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


def _answered(study: Study, baseline: Baseline, record: CotRecord, altered: Altered) -> Work | NotAltered:
    suffix = tuple(study.encoder.cot_answer_suffix_ids)
    letters = tuple(study.encoder.letter_ids(len(record.problem.choices), "cot_answer"))
    begun = (*record.prompt_ids, *altered.ids)
    length, context = len(begun) + len(suffix), study.facts.context_length
    if length > context:
        reason = f"prompt, changed CoT and question have {length} tokens, the model's context holds {context}"
        return NotAltered(altered.cot_step_index, "failed", reason, altered.changed_text, altered.source)
    if altered.continues:
        return Work(baseline, record, altered, CotRequest(begun, suffix, letters, len(altered.ids)))
    return Work(baseline, record, altered, Question((*begun, *suffix), letters))


def _explained(study: Study, baseline: Baseline, record: CotRecord) -> Work | NotAltered:
    assert record.direct is not None
    try:
        tokens = question_tokens(study.encoder, record.problem)
    except ItemError as error:
        return NotAltered(None, "failed", str(error))
    letters = study.encoder.letter_ids(len(record.problem.choices), "direct")
    rng = item_rng(study.config.seed, record.problem.problem_id, "cc_shap")
    request = ShapRequest(
        question=tuple(study.encoder.direct(record.problem)),
        answer_id=letters[record.direct.index],
        cot_prompt=record.prompt_ids,
        cot_ids=record.cot_ids,
        tokens=tokens,
        mask_id=mask_token(study.encoder),
        seeds=(int(rng.integers(2**31)), int(rng.integers(2**31))),
    )
    return Work(baseline, record, None, request)
