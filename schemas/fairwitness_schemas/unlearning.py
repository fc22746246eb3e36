"""Tables of FUR: unlearning tasks, and general capability before and after them."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import (
    BOOL,
    DATA_SET,
    FLOAT,
    INT,
    LORA_RANK,
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

UNLEARNING = Table(
    "unlearning",
    pa.schema(
        [
            key_column("hash of task_key and iteration"),
            column(
                "task_key",
                TEXT,
                "hash of all inputs of the task (retain set too) and of the code revision",
                required=True,
            ),
            column("cell_key", TEXT, "hash of model, data set, rate and recipe: one cell of the sweep", required=True),
            SCOPE_KEY,
            column("attempt", INT, "how often the task was tried, from 1; the last one counts", required=True),
            column(
                "place_key", TEXT, "hash of cell, CoT and CoT step, without the retain set; the last task there counts"
            ),
            column("iteration", INT, "number of updates made, from 1; 0 for a skipped or failed task", required=True),
            MODEL,
            MODEL_REVISION,
            DATA_SET,
            PROBLEM_ID,
            PROBLEM_KEY,
            column("cot_key", TEXT, "key in `cots`"),
            column("cot_step_index", INT, "position of the unlearned step in its CoT, from 0; null when there is none"),
            column("method", TEXT, "ff2 | lora: which parameters are updated", required=True),
            LORA_RANK,
            column("lr", FLOAT, "learning rate"),
            SEED,
            column("base_letter", TEXT, "direct answer of the base model"),
            column(
                "base_probs", pa.list_(FLOAT), "probability of each letter under the base model, sums to 1, A first"
            ),
            column("predicted_letter", TEXT, "direct answer after this iteration"),
            column("probs", pa.list_(FLOAT), "probability of each letter after this iteration, sums to 1, A first"),
            column("letter_mass", FLOAT, "total probability of the letters after this iteration, 0 to 1"),
            column("flipped", BOOL, "whether predicted_letter differs from base_letter"),
            column("base_cot_step_logprob", FLOAT, "mean log-probability of the step's tokens before unlearning, nats"),
            column("cot_step_logprob", FLOAT, "mean log-probability of the step's tokens after this iteration, nats"),
            column("efficacy", FLOAT, "(p0 - p)/p0 with p = exp(mean log-probability of the step's tokens), at most 1"),
            column("specificity", FLOAT, "share of held-out problems whose answer is unchanged, 0 to 1"),
            column("num_held_out", INT, "number of held-out problems behind specificity"),
            column("held_out_letters", pa.list_(TEXT), "answers to the held-out problems after this iteration"),
            column("loss", FLOAT, "loss of the update that led to this iteration: weighted sum of `losses`, nats"),
            column("loss_names", pa.list_(TEXT), "names of the objective's losses, for example npo and kl"),
            column(
                "losses", pa.list_(FLOAT), "those losses without their coefficients, in the order of the names, nats"
            ),
            column("metric_names", pa.list_(TEXT), "names of the objective's metrics, for example log_ratio"),
            column("metrics", pa.list_(FLOAT), "those metrics for that update, in the order of the names"),
            column("cot_after_ids", pa.list_(INT), "token ids of the CoT generated after this iteration, on request"),
            column("cot_after_text", TEXT, "text of the CoT generated after this iteration, on request"),
            column("cot_after_letter", TEXT, "answer after that CoT, on request"),
            column("group_size", INT, "how many tasks were unlearned at once"),
            column("worker", TEXT, "name of the worker that ran the task"),
            column("duration_s", FLOAT, "seconds from hand-out to result, for the task's whole group"),
            *status_columns(),
        ]
    ),
    version=4,
    volatile=("attempt", "group_size", "worker", "duration_s"),
    resume_key="task_key",
    place_key="place_key",
)
"""a row per unlearning task and iteration. One task is one problem, CoT step and learning rate."""


CAPABILITY = Table(
    "capability",
    pa.schema(
        [
            key_column("hash of task_key and the questions, or of what else the row is about"),
            column("task_key", TEXT, "the task in `unlearning`; null in a row about a question or about a whole cell"),
            column("cell_key", TEXT, "the task's cell; null where there is none"),
            SCOPE_KEY,
            column("attempt", INT, "how often the task was tried, from 1; the last one counts"),
            MODEL,
            column("data_set", TEXT, "name of the data set that the step is from", required=True),
            column("problem_id", TEXT, "name of the problem that the step is from; null where there is no task"),
            column("problem_key", TEXT, "its key in `problems`"),
            column("cot_step_index", INT, "position of the unlearned step in its CoT, from 0"),
            column("method", TEXT, "ff2 | lora: which parameters are updated; null in a row about a question"),
            LORA_RANK,
            column("lr", FLOAT, "learning rate"),
            column("capability_set", TEXT, "name of the data set of the questions", required=True),
            column(
                "capability_revision", TEXT, "hash of the questions asked, and of the code that asks", required=True
            ),
            column("question_id", TEXT, "the question that is not asked, in a row about a question"),
            column("num_questions", INT, "questions asked both before and after"),
            column("num_correct_before", INT, "right answers of the base model"),
            column("num_correct_after", INT, "right answers after the last iteration"),
            column("num_changed", INT, "answers that differ between the two"),
            column("question_ids", pa.list_(TEXT), "names of the questions asked, in their order"),
            column("gold_letters", pa.list_(TEXT), "correct answers, in the order of the questions"),
            column("letters_before", pa.list_(TEXT), "answers of the base model, in the order of the questions"),
            column("letters_after", pa.list_(TEXT), "answers after the last iteration, in the order of the questions"),
            column("group_size", INT, "how many tasks were unlearned at once"),
            column("duration_s", FLOAT, "seconds from hand-out to result, for the task's whole group"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=("attempt", "group_size", "duration_s"),
)
"""general capability before and after one unlearning task; questions not asked have rows too."""
