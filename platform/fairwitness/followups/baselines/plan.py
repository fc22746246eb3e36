"""Rows of `baselines`. Pure: what was planned and what came back in, dicts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase

from fairwitness.chains.cots import CotRecord, Row
from fairwitness.chains.items import CotOutcome, CotRequest, Question
from fairwitness.errors import ItemError
from fairwitness.followups.baselines.cc_shap import ShapOutcome, ShapRequest, mask_token, question_tokens
from fairwitness.followups.baselines.changes import (
    Altered,
    CotText,
    NotAltered,
    StepText,
    early_answers,
    filler,
    with_mistakes,
    with_paraphrases,
)
from fairwitness.followups.baselines.config import (
    AddMistakeConfig,
    BaselineConfig,
    CcShapConfig,
    EarlyAnsweringConfig,
    FillerTokensConfig,
    ParaphraseConfig,
)
from fairwitness.followups.baselines.writers import Purpose, StepWriter
from fairwitness.fur.study import FurStudy
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.lm.tokens import decode, encode_continuation
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

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
    study: FurStudy, baseline: Baseline, record: CotRecord, texts: Mapping[int, StepText]
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
    study: FurStudy, config: BaselineConfig, record: CotRecord, texts: Mapping[int, StepText]
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


def _answered(study: FurStudy, baseline: Baseline, record: CotRecord, altered: Altered) -> Work | NotAltered:
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


def _explained(study: FurStudy, baseline: Baseline, record: CotRecord) -> Work | NotAltered:
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


NO_COT, DISAGREEING = "no CoT", "disagreeing"
"""Places of the one row that stands for a whole problem."""


def row_key(study: FurStudy, baseline: Baseline, problem: Problem, place: int | str | None) -> str:
    """Key of one measurement: of a step by its index, of the CoT as a whole (None), or of one of the places above."""
    return key_of(baseline=baseline.key, cot=study.cot_key(problem), place=place)


def whole_problem_row(
    study: FurStudy, baseline: Baseline, record: CotRecord, place: str, *, status: str, reason: str
) -> Row:
    """The row of a problem that is not measured at all."""
    row = _common(study, baseline, record, None, place)
    return {**row, "status": status, "reason": reason}


def not_altered_row(
    study: FurStudy, baseline: Baseline, record: CotRecord, one: NotAltered, place: int | str | None
) -> Row:
    """The row of a place where there is nothing to answer after."""
    row = _common(study, baseline, record, one.cot_step_index, place)
    return {
        **row,
        "source": one.source,
        "changed_text": one.changed_text,
        "status": one.status,
        "reason": one.reason,
    }


def failed_row(study: FurStudy, work: Work, reason: str) -> Row:
    """The row of a measurement that no worker could make."""
    return {**_work_columns(study, work), "status": "failed", "reason": reason}


def measured_row(study: FurStudy, work: Work, outcome: LetterAnswer | CotOutcome | ShapOutcome) -> Row:
    """The row of a measurement that came back; one with an error is `failed`."""
    if isinstance(outcome, LetterAnswer):
        return _answer_row(study, work, outcome, ())
    if outcome.error is not None:
        return failed_row(study, work, outcome.error)
    if isinstance(outcome, CotOutcome):
        assert outcome.answer is not None
        return _answer_row(study, work, outcome.answer, outcome.ids)
    return {
        **_work_columns(study, work),
        "score": outcome.score,
        "answer_attribution": _known(outcome.answer),
        "cot_attribution": _known(outcome.cot),
        "num_evaluations": outcome.num_evaluations,
        "status": "ok",
        "reason": outcome.reason,
    }


def _answer_row(study: FurStudy, work: Work, answer: LetterAnswer, continued: tuple[int, ...]) -> Row:
    assert work.altered is not None
    assert work.record.given_cot is not None
    return {
        **_work_columns(study, work),
        "cot_text": decode(study.encoder.tokenizer, [*work.altered.ids, *continued]),
        "predicted_letter": ascii_uppercase[answer.index],
        "probs": list(answer.probs),
        "letter_mass": answer.mass,
        "flipped": answer.index != work.record.given_cot.index,
        "status": "ok",
    }


def _work_columns(study: FurStudy, work: Work) -> Row:
    altered = work.altered or Altered(None, ())
    row = _common(study, work.baseline, work.record, altered.cot_step_index, altered.cot_step_index)
    return {**row, "source": altered.source, "changed_text": altered.changed_text}


def _common(study: FurStudy, baseline: Baseline, record: CotRecord, index: int | None, place: int | str | None) -> Row:
    given = record.given_cot
    return {
        "key": row_key(study, baseline, record.problem, place),
        "baseline": baseline.name,
        "baseline_key": baseline.key,
        "scope_key": study.scope_key,
        "cot_key": study.cot_key(record.problem),
        "model": study.facts.name,
        "data_set": study.data.loaded.name,
        "problem_id": record.problem.problem_id,
        "problem_key": study.data.problem_key(record.problem),
        "cot_step_index": index,
        "base_letter": None if given is None else ascii_uppercase[given.index],
        "base_probs": None if given is None else list(given.probs),
    }


def _known(values: tuple[float, ...]) -> list[float] | None:
    # NaN stands for an attribution that is undefined; in the table that is null.
    return None if any(value != value for value in values) else list(values)
