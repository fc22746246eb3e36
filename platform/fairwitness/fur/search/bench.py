"""Measures what the trials of a search ask for: problems at learning rates, on the one pool that they share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from fairwitness.fleet.trials import Reply, Request, Settings, Shown
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.evidence import gather, known_rates, to_plain
from fairwitness.fur.search.policies import Evidence, Goal, Policy, Verdict, is_over, judge
from fairwitness.fur.study import Study
from fairwitness.fur.study_run import StudyRun
from fairwitness.stats.bootstrap import named_rng
from fairwitness.text.numbers import shown_rate

log = logging.getLogger(__name__)


class TrialPlanner:
    """A policy as the runner of trials asks it: plain values in and out."""

    def __init__(self, policy: Policy) -> None:
        """Plans nothing yet."""
        self._policy = policy

    def plan(self, done: Sequence[Shown]) -> Sequence[Settings]:
        """See `fleet.trials.Planner`."""
        return [{"lr": trial.lr, "goal": trial.goal.value} for trial in self._policy.plan(known_rates(done))]


class Bench:
    """Answers the trials of one study. Every problem is measured once at a rate, however many trials ask for it."""

    def __init__(self, run: StudyRun, config: LrSearchConfig, on_trial: Callable[[str], None]) -> None:
        """Prepares; nothing is measured yet.

        Args:
            run: The study's run, with the pool and the store.
            config: The search.
            on_trial: Called with the key of the cell of each trial that is over.
        """
        self._run, self._config, self._on_trial = run, config, on_trial
        self._asked: dict[float, set[str]] = {}

    @property
    def study(self) -> Study:
        """The study."""
        return self._run.study

    @cached_property
    def agree(self) -> Mapping[str, bool | None]:
        """problem_key → whether direct and CoT answers of the base model agree."""
        return {self.study.data.problem_key(record.problem): record.agree for record in self._run.records}

    @cached_property
    def batches(self) -> list[Sequence[str]]:
        """Ids of the problems that have tasks, in the order of the draw, in batches. The same for every rate."""
        with_tasks = {task.record.problem.problem_id for task in self._run.tasks}
        drawn = [problem.problem_id for problem in self.study.data.selection.measured]
        search = self._config.search_of(self.study.model)
        return search.batches([problem_id for problem_id in drawn if problem_id in with_tasks])

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """Measures what is new in these requests, all rates together, and says what each rate shows now.

        Raises:
            FairwitnessError: See `StudyRun.run`.
        """
        wanted: dict[float, set[str]] = {}
        for request in requests:
            lr = _lr(request)
            wanted.setdefault(lr, set()).update(self._problems(request.turn + 1) - self._asked.get(lr, set()))
        if any(wanted.values()):
            self._run.measure(wanted, self._label(requests, [lr for lr, problems in wanted.items() if problems]))
        for lr, problems in wanted.items():
            self._asked.setdefault(lr, set()).update(problems)
        return [self._reply(request) for request in requests]

    @property
    def num_tasks(self) -> int:
        """Tasks of one rate on all problems."""
        return len(self._run.tasks)

    def rows(self, lr: float, num_batches: int) -> pd.DataFrame:
        """The rows of a rate on the problems of the first batches, whatever else is stored."""
        where = pc.field("cell_key") == self.study.cell_key(lr)
        frame: pd.DataFrame = self._run.store.read("unlearning", where=where).to_pandas()
        return frame[frame["problem_id"].isin(self._problems(num_batches))]

    def _evidence(self, lr: float, num_batches: int) -> Evidence:
        key = self.study.cell_key(lr)
        return gather(
            self.rows(lr, num_batches),
            self.agree,
            lr=lr,
            batches=self.batches,
            num_batches=num_batches,
            rng=named_rng(self.study.config.seed, key, "search", str(num_batches)),
        )

    def _label(self, requests: Sequence[Request], rates: Sequence[float]) -> str:
        """Which rates are measured, and on which batch of problems each of them."""
        batch = {_lr(request): request.turn + 1 for request in requests}
        number = len(self.batches)
        return "; ".join(f"rate {shown_rate(lr)}, problem batch {batch[lr]} of {number}" for lr in rates)

    def _problems(self, num_batches: int) -> set[str]:
        """The problems of the first batches, and with them those that have no tasks, only rows that say why."""
        later = set().union(*self.batches[num_batches:])
        return {record.problem.problem_id for record in self._run.records} - later

    def _reply(self, request: Request) -> Reply:
        evidence = self._evidence(_lr(request), request.turn + 1)
        over = is_over(Goal(request.settings["goal"]), evidence, self._config.min_specificity)
        if over:
            described = self._describe(evidence, request.turn + 1)
            log.info("%s: rate %s: %s", self.study.label, shown_rate(evidence.lr), described)
            self._on_trial(self.study.cell_key(evidence.lr))
        return Reply(to_plain(evidence), over)

    def _describe(self, evidence: Evidence, num_batches: int) -> str:
        if evidence.failure is not None:
            return f"never best, because {evidence.failure}"
        if evidence.specificity is None or not evidence.efficacies or evidence.efficacies[-1] is None:
            return "nothing was measured"
        asked, every = (sum(map(len, part)) for part in (self.batches[:num_batches], self.batches))
        verdict = judge(evidence, self._config.min_specificity)
        kept = "keeps specificity" if verdict is Verdict.FEASIBLE else "does not keep specificity"
        return (
            f"{kept}: {100 * evidence.specificity:.1f}, efficacy {100 * evidence.efficacies[-1]:.1f}, "
            f"on {asked} of {every} problems"
        )


def _lr(request: Request) -> float:
    value: Any = request.settings["lr"]
    return float(value)
