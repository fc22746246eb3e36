"""What a study of unlearning asks its engine once: whether its arithmetic is right, and how many tasks it takes."""

from __future__ import annotations

from collections.abc import Sequence

from fairwitness.chains.client import EngineClient
from fairwitness.chains.items import HeldOut
from fairwitness.errors import ModelError
from fairwitness.fleet.pool import Pool
from fairwitness.fur.checks import CheckItem, SelfCheck
from fairwitness.fur.memory import Capacity, CapacityItem
from fairwitness.fur.schedule import Planned
from fairwitness.fur.study import FurStudy

NUM_CHECK_TASKS = 2
NUM_CHECK_PROMPTS = 4


class FurClient(EngineClient):
    """Asks a study's engine what unlearning needs to know.

    Attributes:
        health: The self-checks, once they ran.
    """

    study: FurStudy

    def __init__(self, study: FurStudy, pool: Pool) -> None:
        """Prepares; nothing is asked yet."""
        super().__init__(study, pool)
        self.health: dict[str, SelfCheck] = {}

    def check(self, planned: Sequence[Planned]) -> None:
        """Runs the self-checks on the first tasks.

        Raises:
            ModelError: One fails.
        """
        tasks = tuple(item.task for item in planned[:NUM_CHECK_TASKS])
        longest_first = sorted({item.task.question.ids for item in planned}, key=len)
        prompts = tuple(longest_first[:: max(1, len(longest_first) // NUM_CHECK_PROMPTS)])
        self.health = self.ask(CheckItem(tasks, self.study.config.recipe, prompts), "self-checks")
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
        questions = tuple(h.question for h in held_out)
        found = self.ask(CapacityItem(longest, self.study.config.recipe, questions), "size of a group")
        assert isinstance(found, Capacity)
        return found
