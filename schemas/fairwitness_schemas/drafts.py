"""Tables of thinking drafts: the drafts, their steps, and the continuations of changed ones."""

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
    SEED,
    TEXT,
    Table,
    column,
    key_column,
    status_columns,
)

DRAFTS = Table(
    "drafts",
    pa.schema(
        [
            key_column("hash of scope, problem and source"),
            column(
                "scope_key", TEXT, "hash of model, data, source, prompt style, seed and code revision", required=True
            ),
            PROBLEM_KEY,
            PROBLEM_ID,
            DATA_SET,
            MODEL,
            MODEL_REVISION,
            column("source", TEXT, "own, or the name of the model whose drafts were given as a file", required=True),
            column("prompt_style", TEXT, "plain | chat"),
            SEED,
            column("prompt_ids", pa.list_(INT), "token ids up to where the draft begins, opening tag included"),
            column("draft_ids", pa.list_(INT), "token ids of the draft, closing tag excluded"),
            column("draft_text", TEXT, "text of the draft"),
            column("finish", TEXT, "tag | eos | length | given: how the draft ended"),
            column(
                "irregular",
                pa.list_(TEXT),
                "what is unusual about it: unopened, unclosed, empty, doubled, reopened, altered",
            ),
            column("answer_text", TEXT, "what the model wrote after its draft"),
            column("answer_letter", TEXT, "answer stated there; null when none is found"),
            column("conclusion_letter", TEXT, "ans(T): conclusion stated in the draft; null when none is found"),
            column("conclusion_by", TEXT, "what found the conclusion: rules, or the judge's name"),
            column("num_cot_steps", INT, "number of steps that the draft was cut into"),
            column("num_blocks", INT, "number of exploitation blocks"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=(),
)
"""per problem and source one thinking draft, with the answer given after it."""


DRAFT_STEPS = Table(
    "draft_steps",
    pa.schema(
        [
            key_column("hash of the draft's key and the step's index"),
            column("scope_key", TEXT, "the draft's scope", required=True),
            column("draft_key", TEXT, "key in `drafts`", required=True),
            PROBLEM_ID,
            column("cot_step_index", INT, "position of the step in its draft, from 0", required=True),
            column("char_start", INT, "first character of the step in draft_text"),
            column("char_end", INT, "one past the last character of the step in draft_text"),
            column("token_end", INT, "one past the token of draft_ids that ends the step"),
            column("label", TEXT, "continue | backtrack"),
            column("block_index", INT, "exploitation block that the step belongs to, from 0; null before the first"),
            column("labelled_by", TEXT, "rules, or the judge's name"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=(),
)
"""the labelled steps of every draft."""


CONTINUATIONS_STATUSES = ("ok", "truncated", "skipped", "failed")

CONTINUATIONS = Table(
    "continuations",
    pa.schema(
        [
            key_column("hash of the draft's key, the intervention with its settings, and how the answer is given"),
            column("scope_key", TEXT, "the draft's scope", required=True),
            column("cell_key", TEXT, "hash of scope, intervention, insertion type, limits and readers", required=True),
            column("draft_key", TEXT, "key in `drafts`", required=True),
            PROBLEM_ID,
            DATA_SET,
            MODEL,
            column("source", TEXT, "where the draft is from: own, or the name of another model", required=True),
            column("dimension", TEXT, "intra | answer: within the draft, or from draft to answer", required=True),
            column("intervention", TEXT, "its name, for example shift_mapping or direct", required=True),
            column("insertion_type", TEXT, "continue | backtrack; null for dimension answer"),
            column("position", TEXT, "initial | middle | end; null for dimension answer"),
            column("block_index", INT, "exploitation block after which the text was inserted"),
            column("answering", TEXT, "standard | immediate; null for dimension intra"),
            column("inserted_text", TEXT, "the text inserted"),
            column("inserted_at", INT, "how many tokens of the draft stand before it"),
            column("continuation_ids", pa.list_(INT), "token ids as generated, stop excluded"),
            column("continuation_text", TEXT, "text of the continuation"),
            column("finish", TEXT, "tag | cue | eos | length: why the continuation ended; length is truncated"),
            column("num_tokens", INT, "number of tokens generated"),
            column("base_letter", TEXT, "ans(T) of the draft as it was"),
            column("expected_letters", pa.list_(TEXT), "letters that phi allows for a faithful follower"),
            column("conclusion_letter", TEXT, "ans of the continuation or of the answer; null when none is found"),
            column("conclusion_by", TEXT, "what found it: rules, or the judge's name"),
            column("conclusion_rules", TEXT, "letter that the rules read, or none; null where truncated"),
            column(
                "conclusion_judge",
                TEXT,
                "letter that the judge read, or none; null where it was not asked or gave none",
            ),
            column("behaviour", TEXT, "correction | following; null for dimension answer or when undecided"),
            column("behaviour_by", TEXT, "what decided: rules, or the judge's name"),
            column("behaviour_rules", TEXT, "what the rules say, whoever decides"),
            column("behaviour_judge", TEXT, "what the judge says; null without a judge"),
            column("is_faithful", BOOL, "delta_intra or consistency; null when undefined"),
            column("duration_s", FLOAT, "seconds from hand-out to result, for the item's whole batch"),
            *status_columns(CONTINUATIONS_STATUSES),
        ]
    ),
    version=2,
    volatile=("duration_s",),
    statuses=CONTINUATIONS_STATUSES,
    finished=("ok", "truncated", "skipped"),
)
"""a row per counterfactual continuation of a draft."""


JOB = "draft_faithfulness"
"""The job that fills them."""
OWN = "own"
