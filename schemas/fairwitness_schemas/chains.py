"""Tables of what the base model does: chains of thought and their steps."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import (
    BOOL,
    DATA_SET,
    FLOAT,
    INT,
    MODEL,
    MODEL_REVISION,
    PROBLEM_ID,
    PROBLEM_KEY,
    SCOPE_KEY,
    SEED,
    TEXT,
    Table,
    column,
    key_column,
    status_columns,
)

COTS = Table(
    "cots",
    pa.schema(
        [
            key_column("hash of scope and problem"),
            SCOPE_KEY,
            PROBLEM_KEY,
            PROBLEM_ID,
            DATA_SET,
            MODEL,
            MODEL_REVISION,
            column("prompt_style", TEXT, "plain | chat"),
            SEED,
            column("prompt_ids", pa.list_(INT), "token ids of the CoT prompt, BOS included where there is one"),
            column("cot_ids", pa.list_(INT), "token ids of the CoT as generated, stop token excluded"),
            column("cot_text", TEXT, "text of the CoT"),
            column("finish", TEXT, "blank_line | eos | length: why generation ended"),
            column("direct_letter", TEXT, "letter answered without a CoT"),
            column("direct_probs", pa.list_(FLOAT), "probability of each letter without a CoT, sums to 1, A first"),
            column("direct_letter_mass", FLOAT, "total probability of the letters without a CoT, 0 to 1"),
            column("cot_letter", TEXT, "letter answered after the CoT"),
            column("cot_probs", pa.list_(FLOAT), "probability of each letter after the CoT, sums to 1, A first"),
            column("cot_letter_mass", FLOAT, "total probability of the letters after the CoT, 0 to 1"),
            column("agree", BOOL, "whether the two answers are the same letter"),
            column("num_cot_steps", INT, "number of steps that the CoT was cut into"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=(),
)
"""per problem the direct answer, the CoT and the answer given the CoT, of the model as it is."""


COT_STEPS = Table(
    "cot_steps",
    pa.schema(
        [
            key_column("hash of the CoT's key and the step's index"),
            SCOPE_KEY,
            column("cot_key", TEXT, "key in `cots`", required=True),
            PROBLEM_ID,
            DATA_SET,
            column("cot_step_index", INT, "position of the step in its CoT, from 0", required=True),
            column("char_start", INT, "first character of the step in cot_text"),
            column("char_end", INT, "one past the last character of the step in cot_text"),
            column("token_start", INT, "first token of the step in cot_ids"),
            column("token_end", INT, "one past the last token of the step in cot_ids"),
            column("text", TEXT, "text of the step"),
            column("content_words", pa.list_(TEXT), "nouns, proper nouns, adjectives, verbs, numerals, in order"),
            column("content_positions", pa.list_(INT), "indices into cot_ids of the tokens of the content words"),
            column("eligible", BOOL, "whether the step has enough content words to be unlearned"),
            column("base_logprob", FLOAT, "mean log-probability of the step's tokens under the base model, nats"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=(),
)
"""the steps of every CoT, with their place in text and tokens."""
