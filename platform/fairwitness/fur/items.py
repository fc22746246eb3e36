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
        prompt: Prompt of the CoT.
        suffix: What follows the CoT up to the answer cue.
        letter_ids: Ids of the letters after that cue.
    """

    prompt: Ids
    suffix: Ids
    letter_ids: Ids


@dataclass(frozen=True)
class CotItem:
    """CoTs to generate greedily. Gives one `CotOutcome` per request."""

    requests: tuple[CotRequest, ...]
    cot: CotConfig


@dataclass(frozen=True)
class CotOutcome:
    """A CoT and the answer given it.

    Attributes:
        ids: Generated ids, without the blank line or end-of-text token.
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
