"""Table `trials`: a row per learning rate that a search tried for one model and data set."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _FLOAT, _INT = pa.string(), pa.float64(), pa.int32()

SCHEMA = pa.schema(
    [
        key_column("hash of the job and the cell"),
        column("run_key", _TEXT, "key in `runs` of the job that searched", required=True),
        column("cell_key", _TEXT, "the trial's cell in `unlearning`", required=True),
        identity.SCOPE_KEY,
        identity.MODEL,
        identity.DATA_SET,
        column("method", _TEXT, "ff2 | lora: which parameters are updated", required=True),
        identity.LORA_RANK,
        column("searcher", _TEXT, "grid | bracket", required=True),
        column("trial_index", _INT, "position of the rate in the order of trials, from 0", required=True),
        column("lr", _FLOAT, "learning rate", required=True),
        column("min_specificity", _FLOAT, "percent that specificity must reach after rounding", required=True),
        column("num_problems", _INT, "problems behind efficacy and specificity"),
        column("num_tasks_ok", _INT, "tasks measured"),
        column("efficacy", _FLOAT, "mean efficacy, at most 1"),
        column("efficacy_low", _FLOAT, "lower end of its interval"),
        column("efficacy_high", _FLOAT, "upper end of its interval"),
        column("specificity", _FLOAT, "mean specificity, 0 to 1"),
        column("specificity_low", _FLOAT, "lower end of its interval"),
        column("specificity_high", _FLOAT, "upper end of its interval"),
        column("is_feasible", pa.bool_(), "whether specificity reaches the bound; null when it is undefined"),
        column("is_selected", pa.bool_(), "whether the search selects this rate"),
        column("decision", _TEXT, "complete (all problems) | feasible early | infeasible early | failed"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ("key", "run_key")

TABLE = Table("trials", SCHEMA, VERSION, VOLATILE, finished=())
