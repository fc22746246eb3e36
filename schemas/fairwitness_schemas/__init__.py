"""The tables of fairwitness, pyarrow only, so that results can be read without the platform."""

from __future__ import annotations

from fairwitness_schemas import chains, drafts, followups, runs, unlearning
from fairwitness_schemas.table import Table, describe

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        runs.PROBLEMS,
        chains.COTS,
        chains.COT_STEPS,
        unlearning.UNLEARNING,
        runs.TRIALS,
        unlearning.CAPABILITY,
        followups.BASELINES,
        followups.JUDGEMENTS,
        followups.RATINGS,
        drafts.DRAFTS,
        drafts.DRAFT_STEPS,
        drafts.CONTINUATIONS,
        runs.RUNS,
    )
}
"""Every table by its name, in the order in which a job fills them."""

__all__ = ["TABLES", "Table", "describe"]
