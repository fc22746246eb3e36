"""Small searches for learning rates: configurations, runs without a report, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairwitness.config import validate
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from fairwitness.fur.search.config import LrSearchConfig
from fairwitness.fur.search.job import LrSearch
from fairwitness.fur.search.outcome import SearchOutcome
from tests.helpers.sweeps import NUM_PROBLEMS, merged, settings

SEARCH_RATES = (1e-4, 1e-3, 1e-2, 1e-1)


def search_settings(output: Path, model: Path, data: Path, /, **changes: Any) -> dict[str, Any]:
    """Plain settings of a small search without Ray and MLflow; `changes` are merged, mappings key by key."""
    base = settings(output, model, data)
    del base["rates"]
    search = {"kind": "bracket", "rates": list(SEARCH_RATES), "batch_problems": 2}
    return merged({**base, "search": search, "min_problems": NUM_PROBLEMS}, changes)


def search_config(plain: Mapping[str, Any]) -> LrSearchConfig:
    """The checked configuration."""
    return validate(LrSearchConfig, plain, "test")


class SearchResult(NamedTuple):
    """What became of a search, and what it found."""

    job: JobResult
    outcomes: Sequence[SearchOutcome]

    def __getattr__(self, name: str) -> Any:
        """What became of the job, too."""
        return getattr(self.job, name)


def search(plain: Mapping[str, Any]) -> SearchResult:
    """Runs a search without a report."""
    measure = LrSearch(search_config(plain), Supplies())
    return SearchResult(run_measure(measure, lambda _measure: Report((), ())), measure.outcomes)
