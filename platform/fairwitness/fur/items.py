"""What an engine is asked before anything is unlearned: answers, CoTs, probabilities of steps, checks, capacity."""

from __future__ import annotations

from dataclasses import dataclass

from fairwitness.fur.config import CotConfig, RecipeConfig
from fairwitness.fur.tasks import Ids, Question, UnlearnTask
from fairwitness.lm.scoring import LetterAnswer


@dataclass(frozen=True)
class AnswerItem:
    """Questions to answer directly. Gives one `LetterAnswer` per question."""

    questions: tuple[Question, ...]


@dataclass(frozen=True)
class CotRequest:
    """One CoT to generate and to answer from.

    Attributes:
        prompt: Prompt of the CoT, and what of the CoT is given.
        suffix: What follows the CoT up to the answer cue.
        letter_ids: Ids of the letters after that cue.
        num_begun: How many of the prompt's last ids are the given beginning of the CoT.
    """

    prompt: Ids
    suffix: Ids
    letter_ids: Ids
    num_begun: int = 0


@dataclass(frozen=True)
class CotItem:
    """CoTs to generate greedily. Gives one `CotOutcome` per request."""

    requests: tuple[CotRequest, ...]
    cot: CotConfig


@dataclass(frozen=True)
class CotOutcome:
    """A CoT and the answer given it.

    Attributes:
        ids: Generated ids, without the blank line or end-of-text token; the given beginning of a CoT is not among them.
        finish: `blank_line`, `eos` or `length`; None where nothing was generated.
        answer: None where there is an error.
        error: Why there is no CoT or no answer.
    """

    ids: Ids
    finish: str | None
    answer: LetterAnswer | None
    error: str | None


@dataclass(frozen=True)
class StepScoreItem:
    """CoTs whose steps are scored under the base model. Gives, per CoT, the mean log-probability of each step."""

    cots: tuple[CotSteps, ...]


@dataclass(frozen=True)
class CotSteps:
    """Prompt and CoT ids, and the half-open ranges of its steps."""

    ids: Ids
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CheckItem:
    """The self-checks of a run on a few real tasks. Gives a dict of `SelfCheck` by name."""

    tasks: tuple[UnlearnTask, ...]
    recipe: RecipeConfig
    prompts: tuple[Ids, ...]


@dataclass(frozen=True)
class SelfCheck:
    """One self-check: what was measured, and the largest value that passes."""

    value: float
    limit: float
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the value is within the limit (a value that is not a number is not)."""
        return self.value <= self.limit


@dataclass(frozen=True)
class CapacityItem:
    """Asks how many of the given tasks fit into memory at once. Gives a `Capacity`."""

    longest: UnlearnTask
    recipe: RecipeConfig
    held_out: tuple[Question, ...]


@dataclass(frozen=True)
class ShapRequest:
    """One problem for CC-SHAP.

    Attributes:
        question: The direct prompt.
        answer_id: Id of the answer's letter after it.
        cot_prompt: Prompt of the CoT.
        cot_ids: The CoT as generated.
        tokens: Positions of the question's tokens, the same in both prompts.
        mask_id: Stands in place of a hidden token.
        seeds: Seeds of the random orders, for the answer and for the CoT.
    """

    question: Ids
    answer_id: int
    cot_prompt: Ids
    cot_ids: Ids
    tokens: Ids
    mask_id: int
    seeds: tuple[int, int]


@dataclass(frozen=True)
class ShapItem:
    """Problems for CC-SHAP. Gives one `ShapOutcome` per request."""

    requests: tuple[ShapRequest, ...]
    max_evaluations: int


@dataclass(frozen=True)
class ShapOutcome:
    """CC-SHAP of one problem.

    Attributes:
        score: See `fairwitness.followups.baselines.cc_shap.Consistency`; None where undefined or there is an error.
        reason: Why the score is undefined.
        answer: Attribution of the answer to each token of the question, as shares of the absolute sum.
        cot: The same for the CoT.
        num_evaluations: Masked prompts that were evaluated.
        is_exact: Whether the Shapley values are exact.
        error: Why there is no result.
    """

    score: float | None
    reason: str | None
    answer: tuple[float, ...]
    cot: tuple[float, ...]
    num_evaluations: int
    is_exact: bool
    error: str | None
