"""What a measurement of general capability costs, from a measured probe of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairwitness.errors import FairwitnessError
from fairwitness.fur.capability.plan import CapabilityPlan
from fairwitness.fur.client import EngineClient
from fairwitness.fur.schedule import Planned, engine_group, pack_groups
from fairwitness.fur.tasks import Question, TaskResult, UnlearnGroup
from fairwitness.records.progress import duration

NUM_PROBE_QUESTIONS = 32


@dataclass(frozen=True)
class CapabilityCost:
    """What is to be done for one study, and how long it takes.

    Attributes:
        num_tasks: Steps to unlearn.
        num_questions: Questions asked after each of them, and once before.
        num_tokens: Tokens of all these questions, the base model's included.
        group_size: Tasks per group.
        seconds: Expected seconds with all actors at work; None where the probe failed.
        reason: Why it failed.
    """

    num_tasks: int
    num_questions: int
    num_tokens: int
    group_size: int
    seconds: float | None
    reason: str | None = None

    @property
    def line(self) -> str:
        """The cost for people."""
        time = f"time unknown ({self.reason})" if self.seconds is None else f"about {duration(self.seconds)}"
        return (
            f"{self.num_tasks:,} cot_steps to unlearn in groups of {self.group_size}, {self.num_questions:,} questions "
            f"after each and once before: {self.num_tokens:,} tokens; {time}"
        )


def capability_group(
    plan: CapabilityPlan, group: Sequence[Planned], questions: Sequence[Question] | None = None
) -> UnlearnGroup:
    """What the engine is sent for a group: no held-out questions, no CoT afterwards, but the capability questions.

    Args:
        plan: The plan.
        group: Some of its tasks.
        questions: Other questions than the plan's.
    """
    asked = plan.questions if questions is None else tuple(questions)
    return replace(engine_group(plan.study, group, ()), cot_after=None, capability=asked)


def capability_groups(plan: CapabilityPlan, client: EngineClient, tasks: Sequence[Planned]) -> list[list[Planned]]:
    """Tasks in groups as large as the engine's memory allows.

    Raises:
        FairwitnessError: The engine cannot be asked.
    """
    size = client.capacity(tasks, ()).group_size
    return pack_groups(tasks, size, plan.study.config.pool.most_workers)


def measure_cost(
    plan: CapabilityPlan, client: EngineClient, groups: Sequence[Sequence[Planned]], *, is_base_known: bool = False
) -> CapabilityCost:
    """Unlearns one group and asks it a few questions of every length; scales up by tasks and tokens.

    Args:
        plan: The plan.
        client: Its engine.
        groups: The groups to run; the first is the probe.
        is_base_known: The base model's answers are there already.
    """
    num_tasks = sum(map(len, groups))
    num_tokens = (num_tasks + (not is_base_known)) * plan.num_tokens
    cost = CapabilityCost(num_tasks, len(plan.questions), num_tokens, len(groups[0]), None)
    by_length = sorted(plan.questions, key=lambda question: len(question.ids))
    sample = by_length[:: -(-len(by_length) // NUM_PROBE_QUESTIONS)]
    try:
        results: list[TaskResult] = client.ask(capability_group(plan, groups[0], sample))
    except FairwitnessError as error:
        return replace(cost, reason=str(error))
    good = [result for result in results if result.error is None]
    if not good:
        return replace(cost, reason=f"no cot_step of the probe could be unlearned: {results[0].error}")
    asked_s = sum(result.capability_s for result in good) / len(good)
    unlearning_s = sum(result.duration_s for result in good) / len(good) - asked_s
    per_token_s = asked_s / sum(len(question.ids) for question in sample)
    seconds = (num_tasks * unlearning_s + num_tokens * per_token_s) / plan.study.config.pool.most_workers
    return replace(cost, seconds=seconds)
