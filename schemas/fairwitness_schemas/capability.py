"""Table `capability`: general capability before and after one unlearning task; questions not asked have rows too."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

_TEXT, _FLOAT, _INT = pa.string(), pa.float64(), pa.int32()
_TEXTS = pa.list_(_TEXT)

SCHEMA = pa.schema(
    [
        key_column("hash of task_key and the questions, or of what else the row is about"),
        column("task_key", _TEXT, "the task in `unlearning`; null in a row about a question or about a whole cell"),
        column("cell_key", _TEXT, "the task's cell; null where there is none"),
        identity.SCOPE_KEY,
        column("attempt", _INT, "how often the task was tried, from 1; the last one counts"),
        identity.MODEL,
        column("data_set", _TEXT, "name of the data set that the step is from", required=True),
        column("problem_id", _TEXT, "name of the problem that the step is from; null where there is no task"),
        column("problem_key", _TEXT, "its key in `problems`"),
        column("cot_step_index", _INT, "position of the unlearned step in its CoT, from 0"),
        column("method", _TEXT, "ff2 | lora: which parameters are updated; null in a row about a question"),
        identity.LORA_RANK,
        column("lr", _FLOAT, "learning rate"),
        column("capability_set", _TEXT, "name of the data set of the questions", required=True),
        column("capability_revision", _TEXT, "hash of the questions asked", required=True),
        column("question_id", _TEXT, "the question that is not asked, in a row about a question"),
        column("num_questions", _INT, "questions asked both before and after"),
        column("num_correct_before", _INT, "right answers of the base model"),
        column("num_correct_after", _INT, "right answers after the last iteration"),
        column("num_changed", _INT, "answers that differ between the two"),
        column("question_ids", _TEXTS, "names of the questions asked, in their order"),
        column("gold_letters", _TEXTS, "correct answers, in the order of the questions"),
        column("letters_before", _TEXTS, "answers of the base model, in the order of the questions"),
        column("letters_after", _TEXTS, "answers after the last iteration, in the order of the questions"),
        column("group_size", _INT, "how many tasks were unlearned at once"),
        column("duration_s", _FLOAT, "seconds from hand-out to result, for the task's whole group"),
        *status_columns(),
    ]
)
VERSION = 1
VOLATILE = ("attempt", "group_size", "duration_s")

TABLE = Table("capability", SCHEMA, VERSION, VOLATILE)
