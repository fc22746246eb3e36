"""The methods of a run beside one another: ff-hard of each, and whether they change the same problems' answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.analysis.overlap import FlipAt, Overlap, flip_overlap
from fairwitness.analysis.panels import Panel
from fairwitness.report.format import decimal, percent, plural, rate
from fairwitness.report.tables import estimate_columns
from fairwitness.stats.bootstrap import Estimate
from fairwitness.text.numbers import method_name

FLIPS: tuple[FlipAt, ...] = ("any", "final")


@dataclass(frozen=True)
class MethodPair:
    """Two methods on the same CoTs, each at the rate that the rule selects.

    Attributes:
        first: The method compared with: full FF2 where the run has it, else the lowest rank.
        second: The other one.
        any: Overlap of changes at any iteration; None where a rate is missing.
        final: Overlap of changes at the final iteration; None where a rate is missing.
        reason: Why there is no overlap.
    """

    first: Panel
    second: Panel
    any: Overlap | None
    final: Overlap | None
    reason: str | None


@dataclass(frozen=True)
class MethodGroup:
    """All methods on the CoTs of one model and data set, the one compared with first."""

    panels: tuple[Panel, ...]
    pairs: tuple[MethodPair, ...]


def method_groups(panels: Sequence[Panel], rng_for: Callable[..., np.random.Generator]) -> list[MethodGroup]:
    """The groups of panels that share their CoTs; empty where every model and data set has one method.

    Args:
        panels: All panels of a run, in their order.
        rng_for: Makes a generator from names.
    """
    groups = []
    for _, found in groupby(panels, key=lambda panel: (panel.model, panel.data_set, panel.scope_key)):
        first, *others = found
        if others:
            pairs = tuple(_pair(first, other, rng_for) for other in others)
            groups.append(MethodGroup((first, *others), pairs))
    return groups


def overlap_table(groups: Sequence[MethodGroup]) -> pd.DataFrame:
    """A row per pair of methods and kind of change: counts, Jaccard index and share of equal verdicts."""
    return pd.DataFrame([row for group in groups for pair in group.pairs for row in _rows(pair)])


def overlap_lines(groups: Sequence[MethodGroup]) -> Iterator[str]:
    """The overlaps in words: a line per pair of methods, and under it an indented one per kind of change."""
    for pair in (pair for group in groups for pair in group.pairs):
        yield f"{pair.first.model} on {pair.first.data_set}, {_at_rate(pair.first)} and {_at_rate(pair.second)}:"
        if pair.reason is not None:
            yield f"  {pair.reason}"
        for at, found in (("any iteration", pair.any), ("the final iteration", pair.final)):
            if found is not None:
                yield f"  changed at {at}, of {plural(found.num_counted, 'problem')}:"
                yield (
                    f"    {found.num_both} by both, {found.num_first_only} by the first only, "
                    f"{found.num_second_only} by the second only, {found.num_neither} by neither"
                )
                yield f"    Jaccard index {_shown(found.jaccard, decimal)}"
                yield f"    same verdict, %: {_shown(found.same, percent)}"


def _at_rate(panel: Panel) -> str:
    chosen = f" at {rate(panel.choice.cell.lr)}" if isinstance(panel.choice, ChosenRate) else ""
    return panel_method(panel) + chosen


def _shown(estimate: Estimate, form: Callable[[Any], str]) -> str:
    if estimate.value is None:
        return f"undefined: {estimate.reason}"
    interval = "no interval" if estimate.low is None else f"95% interval {form(estimate.low)} to {form(estimate.high)}"
    return f"{form(estimate.value)} ({interval})"


def panel_method(panel: Panel) -> str:
    """The method of a panel among others, for people."""
    return method_name(panel.method, panel.lora_rank)


def _pair(first: Panel, second: Panel, rng_for: Callable[..., np.random.Generator]) -> MethodPair:
    reasons = [f"{panel_method(p)}: {p.choice.reason}" for p in (first, second) if not isinstance(p.choice, ChosenRate)]
    if reasons:
        return MethodPair(first, second, None, None, " ".join(reasons))
    one, two = first.shown_problems, second.shown_problems
    found = [flip_overlap(one, two, flip_at=at, rng=rng_for(second.slug, "overlap", at)) for at in FLIPS]
    return MethodPair(first, second, found[0], found[1], None)


def _rows(pair: MethodPair) -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {
        "model": pair.first.model,
        "data_set": pair.first.data_set,
        "scope_key": pair.first.scope_key,
    }
    for name, panel in (("first", pair.first), ("second", pair.second)):
        cell = panel.choice.cell if isinstance(panel.choice, ChosenRate) else None
        names |= {f"{name}_method": panel.method, f"{name}_lora_rank": panel.lora_rank}
        names |= {f"{name}_lr": None if cell is None else cell.lr}
        names |= {f"{name}_cell_key": None if cell is None else cell.cell_key}
    for at, found in (("any", pair.any), ("final", pair.final)):
        row = {**names, "flip_at": at, "reason": pair.reason}
        if found is not None:
            row |= {"num_problems": found.num_counted, "num_both": found.num_both}
            row |= {"num_first_only": found.num_first_only, "num_second_only": found.num_second_only}
            row |= {"num_neither": found.num_neither, "num_left_out": found.num_left_out}
            row |= estimate_columns("jaccard", found.jaccard) | estimate_columns("same", found.same)
        yield row
