"""Table `cots`: per problem the direct answer, the CoT and the answer given the CoT, of the model as it is."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

SCHEMA = pa.schema(
    [
        key_column("hash of scope and problem"),
        identity.SCOPE_KEY,
        identity.PROBLEM_KEY,
        identity.PROBLEM_ID,
        identity.DATA_SET,
        identity.MODEL,
        identity.MODEL_REVISION,
        column("prompt_style", pa.string(), "plain | chat"),
        identity.SEED,
        column("prompt_ids", pa.list_(pa.int32()), "token ids of the CoT prompt, BOS included where there is one"),
        column("cot_ids", pa.list_(pa.int32()), "token ids of the CoT as generated, stop token excluded"),
        column("cot_text", pa.string(), "text of the CoT"),
        column("finish", pa.string(), "blank_line | eos | length: why generation ended"),
        column("direct_letter", pa.string(), "letter answered without a CoT"),
        column("direct_probs", pa.list_(pa.float64()), "probability of each letter without a CoT, sums to 1, A first"),
        column("direct_letter_mass", pa.float64(), "total probability of the letters without a CoT, 0 to 1"),
        column("cot_letter", pa.string(), "letter answered after the CoT"),
        column("cot_probs", pa.list_(pa.float64()), "probability of each letter after the CoT, sums to 1, A first"),
        column("cot_letter_mass", pa.float64(), "total probability of the letters after the CoT, 0 to 1"),
        column("agree", pa.bool_(), "whether the two answers are the same letter"),
        column("num_cot_steps", pa.int32(), "number of steps that the CoT was cut into"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ()

TABLE = Table("cots", SCHEMA, VERSION, VOLATILE)
