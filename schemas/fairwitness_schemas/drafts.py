"""Table `drafts`: per problem and source one thinking draft, with the answer given after it."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _INT = pa.string(), pa.int32()
_IDS = pa.list_(_INT)

SCHEMA = pa.schema(
    [
        key_column("hash of scope, problem and source"),
        column("scope_key", _TEXT, "hash of model, data, source, prompt style, seed and code revision", required=True),
        identity.PROBLEM_KEY,
        identity.PROBLEM_ID,
        identity.DATA_SET,
        identity.MODEL,
        identity.MODEL_REVISION,
        column("source", _TEXT, "own, or the name of the model whose drafts were given as a file", required=True),
        column("prompt_style", _TEXT, "plain | chat"),
        identity.SEED,
        column("prompt_ids", _IDS, "token ids up to where the draft begins, opening tag included"),
        column("draft_ids", _IDS, "token ids of the draft, closing tag excluded"),
        column("draft_text", _TEXT, "text of the draft"),
        column("finish", _TEXT, "tag | eos | length | given: how the draft ended"),
        column(
            "irregular",
            pa.list_(_TEXT),
            "what is unusual about it: unopened, unclosed, empty, doubled, reopened, altered",
        ),
        column("answer_text", _TEXT, "what the model wrote after its draft"),
        column("answer_letter", _TEXT, "answer stated there; null when none is found"),
        column("conclusion_letter", _TEXT, "ans(T): conclusion stated in the draft; null when none is found"),
        column("conclusion_by", _TEXT, "what found the conclusion: rules, or the judge's name"),
        column("num_cot_steps", _INT, "number of steps that the draft was cut into"),
        column("num_blocks", _INT, "number of exploitation blocks"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ()

TABLE = Table("drafts", SCHEMA, VERSION, VOLATILE)
