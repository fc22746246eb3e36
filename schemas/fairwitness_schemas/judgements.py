"""Table `judgements`: a row per item and judge."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _INT = pa.string(), pa.int32()

SCHEMA = pa.schema(
    [
        key_column("hash of item_key, kind and judge_key"),
        column("item_key", _TEXT, "what is judged: a task_key of `unlearning` for kind cot_after", required=True),
        column("kind", _TEXT, "which question is asked, for example cot_after", required=True),
        identity.SCOPE_KEY,
        column("cell_key", _TEXT, "the task's cell; null where there is none"),
        column("model", _TEXT, "name or path of the judged model as configured", required=True),
        identity.DATA_SET,
        identity.PROBLEM_ID,
        column("cot_step_index", _INT, "position of the step in its CoT, from 0; null when there is none"),
        column("judge", _TEXT, "name of the judge", required=True),
        column("judge_key", _TEXT, "hash of the judge's model, settings and question template", required=True),
        column("verdict", _TEXT, "one of the question's verdicts; null when there is none"),
        column("reply", _TEXT, "the judge's reply, whole"),
        column("num_prompt_tokens", _INT, "tokens sent; null when the judge does not count them"),
        column("num_completion_tokens", _INT, "tokens received; null when the judge does not count them"),
        column("cost", pa.float64(), "price of the reply in the currency of the configured prices; 0 from the cache"),
        column("from_cache", pa.bool_(), "whether the reply came from the cache"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ("cost", "from_cache")

TABLE = Table("judgements", SCHEMA, VERSION, VOLATILE)
