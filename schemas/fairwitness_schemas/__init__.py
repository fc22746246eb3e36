"""The tables of fairwitness: one module per table, pyarrow only, so that results can be read without the platform."""

from __future__ import annotations

from fairwitness_schemas import (
    baselines,
    capability,
    continuations,
    cot_steps,
    cots,
    draft_steps,
    drafts,
    judgements,
    problems,
    ratings,
    runs,
    trials,
    unlearning,
)
from fairwitness_schemas.table import Table, describe

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        problems.TABLE,
        cots.TABLE,
        cot_steps.TABLE,
        unlearning.TABLE,
        trials.TABLE,
        capability.TABLE,
        baselines.TABLE,
        judgements.TABLE,
        ratings.TABLE,
        drafts.TABLE,
        draft_steps.TABLE,
        continuations.TABLE,
        runs.TABLE,
    )
}
"""Every table by its name, in the order in which a job fills them."""

__all__ = ["TABLES", "Table", "describe"]
