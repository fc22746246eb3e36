"""Measures what the trials of a search ask for: problems at learning rates, on the one pool that they share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from fairwitness.analysis.faithfulness import counted_iterations, specificity_of
from fairwitness.analysis.step_results import step_results
from fairwitness.fleet.trials import Reply, Request, Settings, Shown
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.policies import Evidence, Goal, Policy, Verdict, is_over, judge
from fairwitness.fur.study import FurStudy
from fairwitness.fur.study_run import FurStudyRun
from fairwitness.records.store import one_of
from fairwitness.stats.bootstrap import LEVEL, named_rng
from fairwitness.text.numbers import shown_rate


def level_per_look(num_looks: int) -> float:
    """Coverage of the interval at each of several looks that together err as rarely as one at 95% (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(1, num_looks)


def gather(
    rows: pd.DataFrame,
    agree: Mapping[str, bool | None],
    *,
    lr: float,
    batches: Sequence[Sequence[str]],
    num_batches: int,
    rng: np.random.Generator,
) -> Evidence:
    """What a rate has shown on the first batches of problems.

    Only problems whose direct and CoT answers agree count, as in `cell_faithfulness`. A failed task of one of them, or
    a measurement that is not a finite number, makes the rate one that is never best: a mean over the tasks that are
    left would compare with the other rates' means over all.

    Args:
        rows: The rate's rows of `unlearning`.
        agree: problem_key → whether direct and CoT answers agree.
        lr: The rate.
        batches: Ids of all problems that have tasks, in batches.
        num_batches: How many of the batches are measured.
        rng: Source of the bootstrap resamples.
    """
    asked = [set(batch) for batch in batches[:num_batches]]
    counted = rows[rows["problem_id"].isin(set().union(*asked))]
    counted = counted[counted["problem_key"].map(lambda key: bool(agree.get(str(key)))).to_numpy(dtype=bool)]
    iterations = counted_iterations(counted, agree)
    failure = _failed(counted) or _not_finite(iterations)
    if failure is not None:
        return Evidence(lr, (None,) * num_batches, None, None, None, num_batches >= len(batches), failure)
    kept = specificity_of(iterations, rng=rng, level=level_per_look(len(batches)))
    ids = [set().union(*asked[:number]) for number in range(1, num_batches + 1)]
    return Evidence(
        lr=lr,
        efficacies=tuple(_mean(iterations, some) for some in ids),
        specificity=kept.value,
        specificity_low=kept.low,
        specificity_high=kept.high,
        is_complete=num_batches >= len(batches),
    )


def _failed(rows: pd.DataFrame) -> str | None:
    if rows.empty:
        return None
    tasks = step_results(rows)
    failed = tasks[tasks["status"] == "failed"]
    if failed.empty:
        return None
    return f"{len(failed)} of {len(tasks)} tasks failed: {failed['reason'].mode().iloc[0]}"


def _not_finite(iterations: pd.DataFrame) -> str | None:
    values = iterations[["efficacy", "specificity"]].astype(float).to_numpy()
    number = int((~np.isfinite(values)).any(axis=1).sum())
    return f"{number} of {len(iterations)} measurements are not finite" if number else None


def _mean(iterations: pd.DataFrame, problem_ids: set[str]) -> float | None:
    values = iterations.loc[iterations["problem_id"].isin(problem_ids), "efficacy"].astype(float)
    return float(values.mean()) if len(values) else None


def to_plain(evidence: Evidence) -> dict[str, Any]:
    """As values that JSON holds."""
    return {**asdict(evidence), "efficacies": list(evidence.efficacies)}


def from_plain(plain: Mapping[str, Any]) -> Evidence:
    """The evidence that `to_plain` was given."""
    return Evidence(**{**plain, "efficacies": tuple(plain["efficacies"])})


def known_rates(done: Iterable[Mapping[str, Any]]) -> dict[float, Evidence]:
    """What is known of each rate after some trials: what its longest trial has shown.

    Args:
        done: What trials have shown, by `to_plain`.
    """
    known: dict[float, Evidence] = {}
    for evidence in map(from_plain, done):
        before = known.get(evidence.lr)
        if before is None or _rank(before) < _rank(evidence):
            known[evidence.lr] = evidence
    return known


def _rank(evidence: Evidence) -> tuple[bool, bool, int]:
    return evidence.failure is not None, evidence.is_complete, evidence.num_batches


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

    def __init__(self, run: FurStudyRun, config: LrSearchConfig, on_trial: Callable[[str], None]) -> None:
        """Prepares; nothing is measured yet.

        Args:
            run: The study's run, with the pool and the store.
            config: The search.
            on_trial: Called with the key of the cell of each trial that is over.
        """
        self._run, self._config, self._on_trial = run, config, on_trial
        self._asked: dict[float, set[str]] = {}

    @property
    def study(self) -> FurStudy:
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
            FairwitnessError: See `FurStudyRun.run`.
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
        problems = [self.study.data.problem_key(p) for p in self.study.data.selection.measured]
        where = (pc.field("cell_key") == self.study.cell_key(lr)) & one_of("problem_key", problems)
        frame: pd.DataFrame = self._run.store.read("unlearning", where=where).to_pandas()
        return frame[frame["problem_id"].isin(self._problems(num_batches))]

    def _evidence(self, lr: float, num_batches: int) -> Evidence:
        return gather(
            self.rows(lr, num_batches),
            self.agree,
            lr=lr,
            batches=self.batches,
            num_batches=num_batches,
            rng=named_rng(self.study.config.seed, self.study.label, shown_rate(lr), "search", str(num_batches)),
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
