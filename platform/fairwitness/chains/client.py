"""The driver's side of an engine: single questions of a study, each answered or an error."""

from __future__ import annotations

from typing import Any

from fairwitness.chains.cots import held_out_answers
from fairwitness.chains.items import HeldOut
from fairwitness.chains.study import ChainStudy
from fairwitness.errors import DataError, FairwitnessError
from fairwitness.fleet.pool import Pool
from fairwitness.lm.engine import ModelSpec, Request
from fairwitness.records.progress import at_work


class EngineClient:
    """Asks a study's engine single questions through a pool.

    Attributes:
        study: The study.
        pool: The workers.
        spec: Recipe of the engine.
    """

    def __init__(self, study: ChainStudy, pool: Pool) -> None:
        """Prepares; nothing is asked yet."""
        self.study, self.pool = study, pool
        self.spec = engine_spec(study)

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

    def ask(self, request: Request, what: str) -> Any:
        """Sends one request and returns its answer.

        Args:
            request: The request.
            what: What it asks for, for people who wait.

        Raises:
            FairwitnessError: The engine could not answer.
        """
        with at_work(f"{self.study.label}: {what}"):
            (outcome,) = list(self.pool.map(self.spec, [request]))
        if outcome.error is not None:
            raise FairwitnessError(f"{self.study.label}: {outcome.error}")
        return outcome.value


def engine_spec(study: ChainStudy) -> ModelSpec:
    """The engine of a study's model. Actors that share one machine's memory share `memory_share` too."""
    config = study.config
    actors = config.pool.max_actors if study.model.device == "cpu" and config.pool.kind == "ray" else 1
    share = config.engine.memory_share / actors
    return ModelSpec(study.model, config.engine.model_copy(update={"memory_share": share}))
