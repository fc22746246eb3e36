"""The driver's side of an engine: one study's questions to it, each answered or an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairwitness.errors import DataError, FairwitnessError, ModelError
from fairwitness.fleet.pool import Pool
from fairwitness.fur.cots import held_out_answers
from fairwitness.fur.engine import FurSpec
from fairwitness.fur.items import CapacityItem, CheckItem, SelfCheck
from fairwitness.fur.memory import Capacity
from fairwitness.fur.schedule import Planned
from fairwitness.fur.study import Study
from fairwitness.fur.tasks import HeldOut
from fairwitness.records.progress import at_work

NUM_CHECK_TASKS = 2
NUM_CHECK_PROMPTS = 4
_ASKED: Mapping[type, str] = {CheckItem: "self-checks", CapacityItem: "size of a group"}


class EngineClient:
    """Asks a study's engine single questions through a pool."""

    def __init__(self, study: Study, pool: Pool) -> None:
        """Prepares; nothing is asked yet."""
        self.study, self.pool = study, pool
        self.spec = engine_spec(study)
        self.health: dict[str, SelfCheck] = {}

    def check(self, planned: Sequence[Planned]) -> None:
        """Runs the self-checks on the first tasks.

        Raises:
            ModelError: One fails.
        """
        tasks = tuple(item.task for item in planned[:NUM_CHECK_TASKS])
        longest_first = sorted({item.task.question.ids for item in planned}, key=len)
        prompts = tuple(longest_first[:: max(1, len(longest_first) // NUM_CHECK_PROMPTS)])
        self.health = self.ask(CheckItem(tasks, self.study.config.recipe, prompts))
        bad = [
            f"{name} is {c.value:.3g}, at most {c.limit:g} ({c.detail})" for name, c in self.health.items() if not c.ok
        ]
        if bad:
            raise ModelError(
                f"{self.study.label}: self-check failed: {'; '.join(bad)}; its results could not be trusted"
            )

    def capacity(self, planned: Sequence[Planned], held_out: Sequence[HeldOut]) -> Capacity:
        """How many of these tasks an engine can unlearn at once."""
        longest = max((item.task for item in planned), key=lambda task: task.num_tokens)
        found = self.ask(CapacityItem(longest, self.study.config.recipe, tuple(h.question for h in held_out)))
        assert isinstance(found, Capacity)
        return found

    def held_out(self) -> tuple[HeldOut, ...]:
        """The held-out questions with the base model's answers.

        Raises:
            DataError: None fits into the context.
            ModelError: One that fits could not be answered.
        """
        with at_work(f"{self.study.label}: held-out answers"):
            found = held_out_answers(self.study, self.pool, self.spec)
        if not found:
            raise DataError(f"{self.study.label}: no held-out question fits into the model's context")
        return found

    def ask(self, item: Any) -> Any:
        """Sends one request and returns its value.

        Raises:
            FairwitnessError: The engine could not answer.
        """
        with at_work(f"{self.study.label}: {_ASKED.get(type(item), 'one group of tasks')}"):
            (outcome,) = list(self.pool.map(self.spec, [item]))
        if outcome.error is not None:
            raise FairwitnessError(f"{self.study.label}: {outcome.error}")
        return outcome.value


def engine_spec(study: Study) -> FurSpec:
    """The engine of a study's model. Actors that share one machine's memory share `memory_share` too."""
    config = study.config
    actors = config.pool.max_actors if study.model.device == "cpu" and config.pool.kind == "ray" else 1
    share = config.engine.memory_share / actors
    return FurSpec(study.model, config.engine.model_copy(update={"memory_share": share}))
