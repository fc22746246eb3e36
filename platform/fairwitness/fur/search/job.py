"""A search for learning rates: the trials of every study on one pool, and a row in `trials` per rate."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from fairwitness.config import fingerprint
from fairwitness.errors import DataError
from fairwitness.experiment.measure import Session, Supplies
from fairwitness.fleet.trials import Shown, run_trials
from fairwitness.fur.search.bench import Bench, TrialPlanner
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.outcome import SearchOutcome, outcome_of, trial_rows
from fairwitness.fur.study import FurStudy
from fairwitness.fur.study_run import FurStudyRun
from fairwitness.fur.sweep import FurMeasure

log = logging.getLogger(__name__)


class LrSearch(FurMeasure[LrSearchConfig]):
    """The rate of highest efficacy among those that keep specificity, for every model on every data set.

    Attributes:
        outcomes: What was found, per study, once it is.
    """

    job = "lr_search"

    def __init__(self, config: LrSearchConfig, supplies: Supplies) -> None:
        """See `FurMeasure`.

        Raises:
            DataError: A data set has too few problems to choose a rate on.
        """
        super().__init__(config, supplies)
        self.outcomes: list[SearchOutcome] = []
        for study in self.studies:
            number = len(study.data.selection.measured)
            if number < config.min_problems:
                raise DataError(
                    f"{study.data.loaded.name}: {number} problems are too few to choose a rate on, the paper takes 30; "
                    f"raise its num_problems, or set min_problems to at most {number}"
                )

    def measure(self, session: Session) -> None:
        """See `Measure.measure`."""
        for study in self.studies:
            outcome = self._search(study, session)
            searcher = self.config.search_of(study.model).kind
            session.store.append("trials", [{**r, "searcher": searcher} for r in trial_rows(outcome, session.run_key)])
            self.outcomes.append(outcome)

    def dry_run(self) -> Iterator[str]:
        """See `Measure.dry_run`."""
        yield from super().dry_run()
        yield "this is what every rate on every problem takes; the search takes at most that"

    def _search(self, study: FurStudy, session: Session) -> SearchOutcome:
        # A cell is logged when a trial on it is over, not when the problems of one trial are measured.
        run = FurStudyRun(study, session, on_cell=lambda _key: None)
        bench = Bench(run, self.config, partial(self.log_cell, session))
        search = self.config.search_of(study.model)
        planner = TrialPlanner(search.policy(self.config.min_specificity))
        if not bench.batches:
            log.warning("%s: no problem has a cot_step to unlearn; no rate can be chosen", study.label)
        done: list[Shown]
        if self.config.pool.kind == "local":
            done = run_trials(planner, bench.answer)
        else:
            from fairwitness.fleet.tune_trials import run_trials_on_tune

            _ = session.pool  # Tune's trials live on the Ray that the pool has started
            folder = session.dir.path / "tune" / _slug(study, search)
            done = run_trials_on_tune(planner, bench.answer, folder=folder, max_concurrent=search.max_concurrent)
        return outcome_of(bench, done)


def _slug(study: FurStudy, search: Any) -> str:
    """Name of the folder of a study's search; another one for other settings, model, data or code."""
    cells = [study.cell_key(lr) for lr in study.rates]
    return fingerprint([search.model_dump(mode="json"), study.config.min_specificity, cells])
