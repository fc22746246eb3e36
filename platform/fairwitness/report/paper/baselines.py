"""What the baselines job measured, entry by entry, for Tables 2 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairwitness.fur.baselines.summary import BaselineSummary
from fairwitness.report.baselines import baseline_views
from fairwitness.report.paper.data import Entry


@dataclass(frozen=True, eq=False)
class Measured:
    """One baseline, with its settings, on one entry.

    Attributes:
        entry: The entry, whose shown rate ff-hard is of.
        label: Its line: the entry's label, with the settings where there are several.
        settings: The baseline's settings, for people.
        sources: Where its texts are from.
        summary: The figures, all on the same problems.
    """

    entry: Entry
    label: str
    settings: str
    sources: str
    summary: BaselineSummary


def measured(entries: Sequence[Entry], baseline: str, *, with_method: bool) -> list[Measured]:
    """The results of a baseline, in the order of entries and settings.

    Args:
        entries: The entries.
        baseline: Its kind, for example `add_mistake`.
        with_method: Whether lines name the method of unlearning.
    """
    found = []
    for entry in entries:
        views = [v for v in baseline_views(entry.run, [entry.panel]) if v.summary.baseline == baseline]
        for view in views:
            label = entry.label if with_method else entry.base_label
            label += f" ({view.settings})" if len(views) > 1 and view.settings else ""
            found.append(Measured(entry, label, view.settings, view.sources, view.summary))
    return found
