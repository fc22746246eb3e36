"""Table `cot_steps`: the steps of every CoT, with their place in text and tokens."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

SCHEMA = pa.schema(
    [
        key_column("hash of the CoT's key and the step's index"),
        identity.SCOPE_KEY,
        column("cot_key", pa.string(), "key in `cots`", required=True),
        identity.PROBLEM_ID,
        identity.DATA_SET,
        column("cot_step_index", pa.int32(), "position of the step in its CoT, from 0", required=True),
        column("char_start", pa.int32(), "first character of the step in cot_text"),
        column("char_end", pa.int32(), "one past the last character of the step in cot_text"),
        column("token_start", pa.int32(), "first token of the step in cot_ids"),
        column("token_end", pa.int32(), "one past the last token of the step in cot_ids"),
        column("text", pa.string(), "text of the step"),
        column("content_words", pa.list_(pa.string()), "nouns, proper nouns, adjectives, verbs, numerals, in order"),
        column("content_positions", pa.list_(pa.int32()), "indices into cot_ids of the tokens of the content words"),
        column("eligible", pa.bool_(), "whether the step has enough content words to be unlearned"),
        column("base_logprob", pa.float64(), "mean log-probability of the step's tokens under the base model, nats"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ()

TABLE = Table("cot_steps", SCHEMA, VERSION, VOLATILE)
