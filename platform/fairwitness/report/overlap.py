"""The methods of a run beside one another, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fairwitness.analysis.overlap import MethodGroup
from fairwitness.analysis.panels import Panel
from fairwitness.report.format import decimal, percent, plural, rate
from fairwitness.stats.bootstrap import Estimate


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
    cell = panel.chosen_cell
    return panel.method_name + (f" at {rate(cell.lr)}" if cell else "")


def _shown(estimate: Estimate, form: Callable[[Any], str]) -> str:
    if estimate.value is None:
        return f"undefined: {estimate.reason}"
    interval = "no interval" if estimate.low is None else f"95% interval {form(estimate.low)} to {form(estimate.high)}"
    return f"{form(estimate.value)} ({interval})"
