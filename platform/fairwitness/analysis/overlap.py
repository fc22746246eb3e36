"""Whether two ways of changing weights change the answers of the same problems (FUR §7, Figure 5). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from fairwitness.stats.bootstrap import Estimate, cluster_mean, undefined

FlipAt = Literal["any", "final"]


@dataclass(frozen=True)
class Overlap:
    """Problems whose answer changed under two methods.

    Attributes:
        num_both: Changed under both.
        num_first_only: Changed under the first method alone.
        num_second_only: Changed under the second method alone.
        num_neither: Changed under none.
        num_left_out: Problems that count for ff-hard under one method only; they are in no other number.
        jaccard: num_both out of those changed under at least one; undefined where there is none.
        same: Share of all counted problems with the same verdict under both.
    """

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
