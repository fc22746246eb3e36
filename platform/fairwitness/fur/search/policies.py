"""Which learning rate a search tries next, and when a trial has seen enough. Pure: no model, no Ray, no files.

The aim is the highest efficacy among the rates that keep specificity at a bound (FUR, App. E.1). Faithfulness is not
part of what a policy sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fairwitness.analysis.faithfulness import keeps_specificity


class Goal(Enum):
    """How far a trial goes."""

    DECIDE = "decide"
    """Until it is clear whether the rate keeps specificity."""
    COMPLETE = "complete"
    """Until every problem is measured."""


class Verdict(Enum):
    """What is known of a rate."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    OPEN = "open"
    """The interval of specificity contains the bound, and problems are left."""


@dataclass(frozen=True)
class Trial:
    """A learning rate to try, and how far."""

    lr: float
    goal: Goal


@dataclass(frozen=True)
class Evidence:
    """What a rate has shown on the first problems, which are the same for every rate.

    Attributes:
        lr: The rate.
        efficacies: Mean efficacy over the problems of the first batch, of the first two batches, and so on; None where
            it is undefined.
        specificity: Mean specificity over all these problems, 0 to 1; None where it is undefined.
        specificity_low: Lower end of its interval; None where there is none.
        specificity_high: Upper end of its interval; None where there is none.
        is_complete: Whether these are all problems.
        failure: Why the rate can never be best, such as failed tasks or a value that is not finite.
    """

    lr: float
    efficacies: tuple[float | None, ...]
    specificity: float | None
    specificity_low: float | None
    specificity_high: float | None
    is_complete: bool
    failure: str | None = None

    @property
    def num_batches(self) -> int:
        """How many batches of problems it was measured on."""
        return len(self.efficacies)


def judge(evidence: Evidence, min_specificity: float) -> Verdict:
    """Whether a rate keeps specificity.

    Early, that is before all problems are measured, only an interval that lies wholly on one side of the bound decides.
    Rounding counts: an upper end of 94.6% does not lie under a bound of 95. A rate that failed, or whose efficacy or
    specificity stays undefined, does not keep it.

    Args:
        evidence: What the rate has shown.
        min_specificity: The bound in percent.
    """
    if evidence.failure is not None:
        return Verdict.INFEASIBLE
    if evidence.is_complete:
        has_efficacy = evidence.efficacies[-1:] not in ((), (None,))
        if evidence.specificity is None or not has_efficacy:
            return Verdict.INFEASIBLE
        return Verdict.FEASIBLE if keeps_specificity(evidence.specificity, min_specificity) else Verdict.INFEASIBLE
    low, high = evidence.specificity_low, evidence.specificity_high
    if high is not None and not keeps_specificity(high, min_specificity):
        return Verdict.INFEASIBLE
    if low is not None and keeps_specificity(low, min_specificity):
        return Verdict.FEASIBLE
    return Verdict.OPEN


def is_over(goal: Goal, evidence: Evidence, min_specificity: float) -> bool:
    """Whether a trial has seen enough."""
    if evidence.is_complete or evidence.failure is not None:
        return True
    return goal is Goal.DECIDE and judge(evidence, min_specificity) is not Verdict.OPEN


class Policy(Protocol):
    """Plans the trials of a search, round by round. Plans depend on what is known and on nothing else."""

    def plan(self, known: Mapping[float, Evidence]) -> Sequence[Trial]:
        """The trials of the next round, in the order to start them; none when the search is over.

        Args:
            known: What the rates tried so far have shown, in any order. A round is asked for when no trial runs.
        """


@dataclass(frozen=True)
class GridPolicy:
    """Every rate on every problem, all in one round.

    Attributes:
        rates: The rates.
    """

    rates: tuple[float, ...]

    def plan(self, known: Mapping[float, Evidence]) -> Sequence[Trial]:
        """See `Policy.plan`."""
        done = {lr for lr, evidence in known.items() if is_over(Goal.COMPLETE, evidence, 0.0)}
        return [Trial(lr, Goal.COMPLETE) for lr in self.rates if lr not in done]


@dataclass(frozen=True)
class BracketPolicy:
    """Bisects the rates for the boundary where specificity is lost, then completes the best rate below it.

    Efficacy rises with the rate and specificity falls, so the best rate is the highest one that keeps specificity. A
    trial ends as soon as its side of the boundary is clear. The best rate is then measured on all problems; where that
    turns the verdict, the search goes on below. A lower rate whose efficacy is higher on the same problems, against the
    rule, is completed and compared too.

    Attributes:
        rates: The candidates, lowest first.
        min_specificity: The bound in percent.
        parallel: How many rates are tried in one round; more than one spends tasks to save time.
    """

    rates: tuple[float, ...]
    min_specificity: float
    parallel: int = 1

    def plan(self, known: Mapping[float, Evidence]) -> Sequence[Trial]:
        """See `Policy.plan`."""
        low, high = self._bracket(known)
        if high - low > 1:
            return [Trial(self.rates[index], Goal.DECIDE) for index in spread(low, high, self.parallel)]
        best = best_of(self._with(known, Verdict.FEASIBLE))
        return [] if best is None or best.is_complete else [Trial(best.lr, Goal.COMPLETE)]

    def _bracket(self, known: Mapping[float, Evidence]) -> tuple[int, int]:
        """Positions of the highest feasible rate (-1: none) and of the lowest infeasible one above it."""
        feasible, infeasible = (
            [self.rates.index(evidence.lr) for evidence in self._with(known, verdict)]
            for verdict in (Verdict.FEASIBLE, Verdict.INFEASIBLE)
        )
        low = max(feasible, default=-1)
        return low, min((index for index in infeasible if index > low), default=len(self.rates))

    def _with(self, known: Mapping[float, Evidence], verdict: Verdict) -> list[Evidence]:
        tried = [known[lr] for lr in self.rates if lr in known]
        return [evidence for evidence in tried if judge(evidence, self.min_specificity) is verdict]


def best_of(feasible: Iterable[Evidence]) -> Evidence | None:
    """The rate of highest efficacy on equal evidence, that is over the batches that all of them have.

    Equal efficacies go to the lower rate. None when no rate has an efficacy there.
    """
    rated = list(feasible)
    num_batches = min((evidence.num_batches for evidence in rated), default=0)
    if not num_batches:
        return None
    defined = [(evidence.efficacies[num_batches - 1], evidence) for evidence in rated]
    ranked = [(value, -evidence.lr, evidence) for value, evidence in defined if value is not None]
    return max(ranked, key=lambda item: item[:2])[2] if ranked else None


def spread(low: int, high: int, number: int) -> list[int]:
    """At most `number` positions strictly between two others that cut what lies between as evenly as can be."""
    number = min(number, high - low - 1)
    return [low + (high - low) * part // (number + 1) for part in range(1, number + 1)]
