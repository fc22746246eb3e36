"""Table `continuations`: a row per counterfactual continuation of a draft."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _INT, _BOOL = pa.string(), pa.int32(), pa.bool_()

STATUSES = ("ok", "truncated", "skipped", "failed")
"""`truncated`: the continuation reached its limit; it has text, but no verdict."""

SCHEMA = pa.schema(
    [
        key_column("hash of the draft's key, the intervention with its settings, and how the answer is given"),
        column("scope_key", _TEXT, "the draft's scope", required=True),
        column("cell_key", _TEXT, "hash of scope, intervention, insertion type, limits and readers", required=True),
        column("draft_key", _TEXT, "key in `drafts`", required=True),
        identity.PROBLEM_ID,
        identity.DATA_SET,
        identity.MODEL,
        column("source", _TEXT, "where the draft is from: own, or the name of another model", required=True),
        column("dimension", _TEXT, "intra | answer: within the draft, or from draft to answer", required=True),
        column("intervention", _TEXT, "its name, for example shift_mapping or direct", required=True),
        column("insertion_type", _TEXT, "continue | backtrack; null for dimension answer"),
        column("position", _TEXT, "initial | middle | end; null for dimension answer"),
        column("block_index", _INT, "exploitation block after which the text was inserted"),
        column("answering", _TEXT, "standard | immediate; null for dimension intra"),
        column("inserted_text", _TEXT, "the text inserted"),
        column("inserted_at", _INT, "how many tokens of the draft stand before it"),
        column("continuation_ids", pa.list_(_INT), "token ids as generated, stop excluded"),
        column("continuation_text", _TEXT, "text of the continuation"),
        column("finish", _TEXT, "tag | cue | eos | length: why the continuation ended; length is truncated"),
        column("num_tokens", _INT, "number of tokens generated"),
        column("base_letter", _TEXT, "ans(T) of the draft as it was"),
        column("expected_letters", pa.list_(_TEXT), "letters that phi allows for a faithful follower"),
        column("conclusion_letter", _TEXT, "ans of the continuation or of the answer; null when none is found"),
        column("conclusion_by", _TEXT, "what found it: rules, or the judge's name"),
        column("conclusion_rules", _TEXT, "letter that the rules read, or none; null where truncated"),
        column(
            "conclusion_judge", _TEXT, "letter that the judge read, or none; null where it was not asked or gave none"
        ),
        column("behaviour", _TEXT, "correction | following; null for dimension answer or when undecided"),
        column("behaviour_by", _TEXT, "what decided: rules, or the judge's name"),
        column("behaviour_rules", _TEXT, "what the rules say, whoever decides"),
        column("behaviour_judge", _TEXT, "what the judge says; null without a judge"),
        column("is_faithful", _BOOL, "delta_intra or consistency; null when undefined"),
        column("duration_s", pa.float64(), "seconds from hand-out to result, for the item's whole batch"),
        *status_columns(STATUSES),
    ]
)
VERSION = 2
VOLATILE = ("duration_s",)

TABLE = Table("continuations", SCHEMA, VERSION, VOLATILE, statuses=STATUSES, finished=("ok", "truncated", "skipped"))
