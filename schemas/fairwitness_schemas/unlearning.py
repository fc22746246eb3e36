"""Table `unlearning`: a row per unlearning task and iteration. One task is one problem, CoT step and learning rate."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _FLOAT, _INT = pa.string(), pa.float64(), pa.int32()

SCHEMA = pa.schema(
    [
        key_column("hash of task_key and iteration"),
        column(
            "task_key", _TEXT, "hash of all inputs of the task (retain set too) and of the code revision", required=True
        ),
        column("cell_key", _TEXT, "hash of model, data set, rate and recipe: one cell of the sweep", required=True),
        identity.SCOPE_KEY,
        column("attempt", _INT, "how often the task was tried, from 1; the last one counts", required=True),
        column(
            "place_key", _TEXT, "hash of cell, CoT and CoT step, without the retain set; the last task there counts"
        ),
        column("iteration", _INT, "number of updates made, from 1; 0 for a skipped or failed task", required=True),
        identity.MODEL,
        identity.MODEL_REVISION,
        identity.DATA_SET,
        identity.PROBLEM_ID,
        identity.PROBLEM_KEY,
        column("cot_key", _TEXT, "key in `cots`"),
        column("cot_step_index", _INT, "position of the unlearned step in its CoT, from 0; null when there is none"),
        column("method", _TEXT, "ff2 | lora: which parameters are updated", required=True),
        identity.LORA_RANK,
        column("lr", _FLOAT, "learning rate"),
        identity.SEED,
        column("base_letter", _TEXT, "direct answer of the base model"),
        column("base_probs", pa.list_(_FLOAT), "probability of each letter under the base model, sums to 1, A first"),
        column("predicted_letter", _TEXT, "direct answer after this iteration"),
        column("probs", pa.list_(_FLOAT), "probability of each letter after this iteration, sums to 1, A first"),
        column("letter_mass", _FLOAT, "total probability of the letters after this iteration, 0 to 1"),
        column("flipped", pa.bool_(), "whether predicted_letter differs from base_letter"),
        column("base_cot_step_logprob", _FLOAT, "mean log-probability of the step's tokens before unlearning, nats"),
        column("cot_step_logprob", _FLOAT, "mean log-probability of the step's tokens after this iteration, nats"),
        column("efficacy", _FLOAT, "(p0 - p)/p0 with p = exp(mean log-probability of the step's tokens), at most 1"),
        column("specificity", _FLOAT, "share of held-out problems whose answer is unchanged, 0 to 1"),
        column("num_held_out", _INT, "number of held-out problems behind specificity"),
        column("held_out_letters", pa.list_(_TEXT), "answers to the held-out problems after this iteration"),
        column("npo_loss", _FLOAT, "forget loss of the update that led to this iteration, nats"),
        column("kl_loss", _FLOAT, "retain loss of the update that led to this iteration, nats"),
        column("loss", _FLOAT, "weighted sum of both losses, nats"),
        column("cot_after_ids", pa.list_(_INT), "token ids of the CoT generated after this iteration, on request"),
        column("cot_after_text", _TEXT, "text of the CoT generated after this iteration, on request"),
        column("cot_after_letter", _TEXT, "answer after that CoT, on request"),
        column("group_size", _INT, "how many tasks were unlearned at once"),
        column("worker", _TEXT, "name of the worker that ran the task"),
        column("duration_s", _FLOAT, "seconds from hand-out to result, for the task's whole group"),
        *status_columns(),
    ]
)
VERSION = 3
VOLATILE = ("attempt", "group_size", "worker", "duration_s")

TABLE = Table("unlearning", SCHEMA, VERSION, VOLATILE, resume_key="task_key", place_key="place_key")
