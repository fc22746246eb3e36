"""What is sent to an engine and what comes back. Immutable, picklable, token ids only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairwitness.chains.items import Ids, Question
from fairwitness.chains.steps import StepTokens


@dataclass(frozen=True)
class UnlearnTask:
    """One cot_step to unlearn.

    Attributes:
        task_key: Content hash of everything that determines the result.
        forget: The cot_step.
        retain: One cot_step from each of some other problems.
        question: The direct question of the step's problem.
        base_index: The base model's direct answer.
        cot_prompt: Prompt of a new CoT, where one is asked for after unlearning.
        cot_answer_suffix: What follows that CoT up to the answer cue.
        seed: Seed of the task's own random numbers.
    """

    task_key: str
    forget: StepTokens
    retain: tuple[StepTokens, ...]
    question: Question
    base_index: int
    cot_prompt: Ids
    cot_answer_suffix: Ids
    seed: int

    @property
    def num_tokens(self) -> int:
        """Length of the longest sequence, for packing tasks of similar length."""
        return max(len(span.ids) for span in (self.forget, *self.retain))


@dataclass(frozen=True)
class IterationResult:
    """One task after one iteration.

    Attributes:
        iteration: 1 to n.
        probs: Answer distribution over the letters.
        letter_mass: Probability of all letters together.
        index: The most probable choice.
        cot_step_logprob: Mean log-probability of the step's tokens, in nats.
        held_out: The choice on each held-out question.
        losses: Losses of the update that led here by name, in nats, without their coefficients.
        metrics: What else the objective shows of that update, by name.
    """

    iteration: int
    probs: tuple[float, ...]
    letter_mass: float
    index: int
    cot_step_logprob: float
    held_out: Ids
    losses: Mapping[str, float]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class CotAfter:
    """The CoT after the last iteration and the answer given it."""

    ids: Ids
    text: str
    index: int


@dataclass(frozen=True)
class TaskResult:
    """All iterations of one task, or the reason why there are none.

    `cot_after` is None where none was asked for, and where CoT and cue outgrow the model's context. `capability` is the
    choice on each of the group's capability questions, and `capability_s` this task's share of the time they took.
    """

    task_key: str
    measured: tuple[IterationResult, ...]
    error: str | None
    cot_after: CotAfter | None
    group_size: int
    duration_s: float
    capability: Ids = ()
    capability_s: float = 0.0
