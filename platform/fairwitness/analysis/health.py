"""Figures that say whether a panel's measurements can be trusted: letter mass, agreement, truncation, eligibility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairwitness.analysis.panels import Panel
from fairwitness.stats.bootstrap import Estimate, cluster_mean, cluster_ratio, undefined


@dataclass(frozen=True)
class Spread:
    """Smallest and median value; None when nothing was measured."""

    least: float | None
    median: float | None


@dataclass(frozen=True)
class Health:
    """Health of one panel. `COLUMNS["summary"]` says what each figure is."""

    agreement: Estimate
    direct_accuracy: Estimate
    chance: float | None
    cot_accuracy: Estimate
    direct_letter_mass: Spread
    cot_letter_mass: Spread
    unlearned_letter_mass: Spread
    eligible_steps: Estimate
    eligible_tokens: Estimate
    cut_at_length: Estimate
    steps_per_cot: Estimate
    num_counted: int

    @property
    def is_near_chance(self) -> bool:
        """Whether guessing would explain the direct accuracy: its interval is not above chance."""
        low = self.direct_accuracy.low
        return self.chance is not None and low is not None and low <= self.chance


def panel_health(panel: Panel, gold: Mapping[str, str], rng: np.random.Generator) -> Health:
    """Computes the health of a panel.

    Args:
        panel: The panel.
        gold: problem_key → gold letter, where known.
        rng: Source of the bootstrap resamples.
    """
    cots = panel.cots[panel.cots["status"] == "ok"].assign(gold=lambda frame: frame["problem_key"].map(gold))
    steps = panel.cot_steps
    streams = iter(rng.spawn(7))
    graded = cots[cots["gold"].notna()]

    def share(frame: pd.DataFrame, flags: pd.Series[bool], *, is_rate: bool = True) -> Estimate:
        if frame.empty:
            return undefined("nothing was measured")
        return cluster_mean(flags.astype(float), frame["problem_key"].to_numpy(str), rng=next(streams), is_rate=is_rate)

    def right(letter: str) -> Estimate:
        # Results from elsewhere may lack an answer, which is then no wrong one.
        answered = graded[graded[letter].notna()]
        return share(answered, answered[letter] == answered["gold"])

    known = cots[cots["agree"].notna()]
    cut = cots[cots["num_cot_steps"].notna()]
    return Health(
        agreement=share(known, known["agree"]),
        direct_accuracy=right("direct_letter"),
        chance=_chance(graded),
        cot_accuracy=right("cot_letter"),
        cut_at_length=share(cots, cots["finish"] == "length"),
        steps_per_cot=share(cut, cut["num_cot_steps"], is_rate=False),
        direct_letter_mass=_spread(cots["direct_letter_mass"]),
        cot_letter_mass=_spread(cots["cot_letter_mass"]),
        unlearned_letter_mass=_spread(panel.shown_steps["letter_mass"]),
        eligible_steps=_eligible_steps(steps, next(streams)),
        eligible_tokens=_eligible_tokens(cots, steps, next(streams)),
        num_counted=0 if panel.shown_cell is None else int(panel.shown_cell.ff_hard_any.denominator),
    )


def _chance(graded: pd.DataFrame) -> float | None:
    sizes = graded["direct_probs"].map(_length)
    return float((1 / sizes[sizes > 0]).mean()) if (sizes > 0).any() else None


def _eligible_steps(steps: pd.DataFrame, rng: np.random.Generator) -> Estimate:
    known = steps[steps["eligible"].notna()]
    if known.empty:
        return undefined("no CoT step")
    return cluster_mean(known["eligible"].astype(float), known["cot_key"].to_numpy(str), rng=rng, is_rate=True)


def _eligible_tokens(cots: pd.DataFrame, steps: pd.DataFrame, rng: np.random.Generator) -> Estimate:
    eligible = steps[steps["eligible"].fillna(False).astype(bool)]
    counts = eligible["content_positions"].map(_length).groupby(eligible["cot_key"]).sum()
    totals = cots["cot_ids"].map(_length)
    if not totals.sum():
        return undefined("no CoT token")
    return cluster_ratio(cots["key"].map(counts).fillna(0.0), totals, rng=rng, is_rate=True)


def _spread(values: pd.Series[float]) -> Spread:
    known = values.dropna().astype(float)
    return Spread(float(known.min()), float(known.median())) if len(known) else Spread(None, None)


def _length(value: object) -> int:
    return int(np.size(value)) if isinstance(value, np.ndarray | list) else 0
