"""Table `draft_steps`: the labelled steps of every draft."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _INT = pa.string(), pa.int32()

SCHEMA = pa.schema(
    [
        key_column("hash of the draft's key and the step's index"),
        column("scope_key", _TEXT, "the draft's scope", required=True),
        column("draft_key", _TEXT, "key in `drafts`", required=True),
        identity.PROBLEM_ID,
        column("cot_step_index", _INT, "position of the step in its draft, from 0", required=True),
        column("char_start", _INT, "first character of the step in draft_text"),
        column("char_end", _INT, "one past the last character of the step in draft_text"),
        column("token_end", _INT, "one past the token of draft_ids that ends the step"),
        column("label", _TEXT, "continue | backtrack"),
        column("block_index", _INT, "exploitation block that the step belongs to, from 0; null before the first"),
        column("labelled_by", _TEXT, "rules, or the judge's name"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ()

TABLE = Table("draft_steps", SCHEMA, VERSION, VOLATILE)
