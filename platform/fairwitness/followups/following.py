"""What measures on a finished sweep have in common: its studies, its settings, and models that read or write for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from fairwitness.analysis.runs import find_setting
from fairwitness.experiment.config import FollowConfig
from fairwitness.experiment.measure import Measure, Session, Supplies
from fairwitness.fleet.config import PoolConfig
from fairwitness.fur.config import StudyConfig
from fairwitness.fur.finished import FinishedStudy, open_finished
from fairwitness.fur.study import FurStudy
from fairwitness.judges.config import JudgeConfig, LocalModelConfig
from fairwitness.judges.factory import make_chat_model
from fairwitness.judges.protocol import ChatModel
from fairwitness.records.config import TrackingConfig
from fairwitness.records.run_dir import run_rows
from fairwitness.records.store import Store

FollowConfigT = TypeVar("FollowConfigT", bound=FollowConfig)

CACHE_FOLDER = "judge_cache"
"""In the run's folder: replies of models."""


class FollowUp(Measure[FollowConfigT]):
    """A measure on a finished sweep; its rows go into the same store.

    Attributes:
        finished: The sweep's studies with what it measured.
    """

    studies: Sequence[FurStudy]

    def __init__(self, config: FollowConfigT, supplies: Supplies) -> None:
        """Opens the sweep.

        Raises:
            FairwitnessError: See `open_finished`.
        """
        super().__init__(config)
        self.finished: Sequence[FinishedStudy] = open_finished(
            self.run, self.run.store(create=False), supplies.loaders, config
        )
        self.studies = [one.study for one in self.finished]

    @property
    def settings(self) -> StudyConfig:
        """The sweep's settings, with this measure's own engine, workers and tracking where it has them."""
        return self.finished[0].study.config

    @property
    def pool(self) -> PoolConfig:
        """See `Measure.pool`."""
        return self.settings.pool

    @property
    def tracking(self) -> TrackingConfig:
        """See `Measure.tracking`."""
        return self.settings.tracking


def seed_of(store: Store) -> int:
    """Seed of the run that is followed, for intervals; 0 where it is not recorded."""
    return int(find_setting(json.loads(run_rows(store)[-1]["config_json"]), "seed") or 0)


Ask = Callable[[JudgeConfig], ChatModel]
"""Opens a model; the same settings give the same model."""


def chat_models(session: Session, stack: ExitStack) -> Ask:
    """Models that read or write texts, each opened when it is first asked for and closed with the stack.

    Equal settings share one model, with its budget. Opening one raises ConfigError or ModelError, see
    `make_chat_model`.
    """
    opened: dict[str, ChatModel] = {}

    def ask(config: JudgeConfig) -> ChatModel:
        name = config.model_dump_json()
        if name not in opened:
            pool = session.pool if isinstance(config, LocalModelConfig) else None
            model = make_chat_model(config, cache_dir=session.dir.path / CACHE_FOLDER, pool=pool)
            opened[name] = stack.enter_context(model)
        return opened[name]

    return ask
