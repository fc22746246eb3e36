"""What a run directory says of results of others that were read into it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fairwitness.records.run_dir import run_rows
from fairwitness.records.store import Store

IMPORT_JOB = "fur_import"
"""The job whose runs hold results of others."""
CELL_RATES = "rates of cells"
"""Where the health of such a run has the learning rates that files tell, by cell_key."""


def imported_rates(store: Store) -> Mapping[str, float]:
    """cell_key to learning rate, of all imports of a store; for cells whose unlearning is not stored.

    Raises:
        StoreError: The store cannot be read.
    """
    found: dict[str, float] = {}
    for row in run_rows(store, IMPORT_JOB):
        found |= json.loads(row["health_json"] or "{}").get(CELL_RATES, {})
    return found
