"""Whether two ways of changing weights change the answers of the same problems (FUR §7, Figure 5). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairwitness.analysis.columns import columns_of
from fairwitness.analysis.faithfulness import Infeasible
from fairwitness.analysis.panels import Panel
from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined

FlipAt = Literal["any", "final"]


@dataclass(frozen=True)
class Overlap:
    """Problems whose answer changed under two methods. `COLUMNS["overlap"]` says what each figure is."""

    num_both: int
    num_first_only: int
    num_second_only: int
    num_neither: int
    num_left_out: int
    jaccard: Estimate
    same: Estimate

    @property
    def num_counted(self) -> int:
        """Problems that count under both methods."""
        return self.num_both + self.num_first_only + self.num_second_only + self.num_neither


def flip_overlap(
    first: pd.DataFrame, second: pd.DataFrame, *, flip_at: FlipAt = "any", rng: np.random.Generator
) -> Overlap:
    """Compares two cells problem by problem; only problems that count for ff-hard in both enter.

    Intervals resample problems. That of the Jaccard index draws from the problems changed under at least one method,
    because the others have no weight in it.

    Args:
        first: Rows of `problem_results` of one cell.
        second: Those of the other cell, of the same CoTs.
        flip_at: A change at `any` iteration counts, or that of the `final` one.
        rng: Source of the bootstrap resamples.

    Raises:
        ValueError: A frame holds a problem twice, so that it is more than one cell.
    """
    column = f"ff_hard_{flip_at}"
    one, two = (_verdicts(frame, column) for frame in (first, second))
    both = one.index.intersection(two.index).sort_values()
    a, b = one[both].to_numpy(dtype=bool), two[both].to_numpy(dtype=bool)
    changed = a | b
    streams = rng.spawn(2)

    def share(values: np.ndarray[tuple[int], np.dtype[np.bool_]], keys: pd.Index[str], reason: str, k: int) -> Estimate:
        if not len(keys):
            return undefined(reason)
        return cluster_mean(values.astype(float), keys.to_numpy(dtype=str), rng=streams[k], is_rate=True)

    nothing = "no problem counts under both methods"
    return Overlap(
        num_both=int((a & b).sum()),
        num_first_only=int((a & ~b).sum()),
        num_second_only=int((b & ~a).sum()),
        num_neither=int((~changed).sum()),
        num_left_out=len(one.index.symmetric_difference(two.index)),
        jaccard=share((a & b)[changed], both[changed], "neither method changed an answer" if len(both) else nothing, 0),
        same=share(a == b, both, nothing, 1),
    )


def _verdicts(problems: pd.DataFrame, column: str) -> pd.Series[bool]:
    counted = problems[problems["counted"]]
    if counted["problem_key"].duplicated().any():
        raise ValueError("a problem occurs twice; give the problems of one cell")
    verdicts: pd.Series[bool] = counted.set_index("problem_key")[column].astype(bool)
    return verdicts


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


def _pair(first: Panel, second: Panel, rng_for: Callable[..., np.random.Generator]) -> MethodPair:
    reasons = [f"{p.method_name}: {p.choice.reason}" for p in (first, second) if isinstance(p.choice, Infeasible)]
    if reasons:
        return MethodPair(first, second, None, None, " ".join(reasons))
    one, two = first.shown_problems, second.shown_problems
    found = [flip_overlap(one, two, flip_at=at, rng=rng_for(second.slug, "overlap", at)) for at in FLIPS]
    return MethodPair(first, second, found[0], found[1], None)


def _rows(pair: MethodPair) -> Iterator[dict[str, Any]]:
    names = {name: getattr(pair.first, name) for name in ("model", "data_set", "scope_key")}
    for name, panel in (("first", pair.first), ("second", pair.second)):
        cell = panel.chosen_cell
        names |= {f"{name}_method": panel.method, f"{name}_lora_rank": panel.lora_rank}
        names |= {f"{name}_lr": cell and cell.lr, f"{name}_cell_key": cell and cell.cell_key}
    counts = ("num_both", "num_first_only", "num_second_only", "num_neither", "num_left_out")
    for at, found in (("any", pair.any), ("final", pair.final)):
        row = {**names, "flip_at": at, "reason": pair.reason}
        if found is not None:
            row |= {"num_problems": found.num_counted} | columns_of(found, (*counts, "jaccard", "same"))
        yield row
