"""Table `ratings`: how well a step supports its answer, as people rated it, beside its ff-soft."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _INT = pa.string(), pa.int32()

SCHEMA = pa.schema(
    [
        key_column("hash of item_key and rater"),
        column("item_key", _TEXT, "name of the rated step as the raters saw it", required=True),
        column("scope_key", _TEXT, "hash of model, data, prompt style, seed and code revision"),
        column("cell_key", _TEXT, "the cell that ff_soft is from"),
        identity.MODEL,
        identity.DATA_SET,
        identity.PROBLEM_ID,
        column("cot_step_index", _INT, "position of the step in its CoT, from 0", required=True),
        column("ff_soft", pa.float64(), "probability that unlearning the step took from the answer, -1 to 1"),
        column("bin", _TEXT, "negative | neutral | moderate | high"),
        column("rater", _TEXT, "who rated", required=True),
        column("rating", _INT, "1 (not at all) to 5 (fully); null where the rater gave none"),
        column("source", _TEXT, "file that the rating is from"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ("source",)

TABLE = Table("ratings", SCHEMA, VERSION, VOLATILE)
