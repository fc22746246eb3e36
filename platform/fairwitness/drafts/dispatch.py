"""Sends batches of a study to its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from fairwitness.drafts.engine import ContinueItem, DraftItem, DraftSpec
from fairwitness.drafts.study import DraftStudy
from fairwitness.fleet.pool import Outcome, Pool
from fairwitness.judges.config import LocalModelConfig

BATCHES_PER_WORKER = 4

B = TypeVar("B")


def run_batches(
    study: DraftStudy, pool: Pool, batches: Sequence[B], item: Callable[[B], ContinueItem | DraftItem]
) -> Iterator[tuple[B, Outcome]]:
    """Every batch with what became of it, in the order they finish.

    A judge that runs on the same pool is asked about results while others are under way, and a pool does one thing at a
    time; there the batches go in waves, a few for every worker, and results are handed on between two of them.

    Args:
        study: The study.
        pool: Where.
        batches: What the items are made from.
        item: Makes a batch's item, when it is sent.
    """
    spec = DraftSpec(study.model, study.config.engine)
    shares_pool = isinstance(study.config.judge, LocalModelConfig)
    size = BATCHES_PER_WORKER * study.config.pool.most_workers if shares_pool else max(1, len(batches))
    for start in range(0, len(batches), size):
        wave = batches[start : start + size]
        outcomes: Iterable[Outcome] = pool.map(spec, map(item, wave))
        for outcome in list(outcomes) if shares_pool else outcomes:
            yield wave[outcome.index], outcome
