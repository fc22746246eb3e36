"""Tables of every run: its jobs, its problems, the trials of a search."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import (
    BOOL,
    DATA_SET,
    FLOAT,
    INT,
    LORA_RANK,
    MODEL,
    SCOPE_KEY,
    TEXT,
    Table,
    column,
    key_column,
    status_columns,
)

RUNS_STATUSES = ("running", "done", "interrupted", "failed")

RUNS = Table(
    "runs",
    pa.schema(
        [
            key_column("id of the run"),
            column("name", TEXT, "name of the run and of its directory", required=True),
            column("job", TEXT, "which job it is, for example fur_sweep", required=True),
            column("is_followup", BOOL, "whether the job followed on a run; null or false: it made the run"),
            column("created_at", pa.timestamp("us", tz="UTC"), "when the job started, UTC", required=True),
            column("finished_at", pa.timestamp("us", tz="UTC"), "when the job ended, UTC; null while it runs"),
            column("config_json", TEXT, "resolved configuration as JSON, credentials removed", required=True),
            column("config_fingerprint", TEXT, "hash of the resolved configuration"),
            column("code_revision", TEXT, "hash of the source files that decide the results"),
            column("models", pa.list_(TEXT), "the models, each name@revision"),
            column("data_sets", pa.list_(TEXT), "the data sets, each name@revision"),
            column("scope_keys", pa.list_(TEXT), "the scope keys of the rows that belong to the run"),
            column("cell_keys", pa.list_(TEXT), "the cell keys of the rows that belong to the run"),
            column("problem_keys", pa.list_(TEXT), "keys of the problems that it is about; null: all"),
            column("text_keys", pa.list_(TEXT), "keys of the drafts that it is about; null for other jobs"),
            column("num_ok", pa.int64(), "tasks measured, those of earlier runs included"),
            column("num_skipped", pa.int64(), "tasks skipped with a reason"),
            column("num_failed", pa.int64(), "tasks failed with a reason"),
            column("num_refused", pa.int64(), "problem records refused with a reason"),
            column("exit_code", INT, "exit code of the job; null while it runs"),
            column("mlflow_run_id", TEXT, "id of the parent run in MLflow; null when tracking was off or failed"),
            column("health_json", TEXT, "self-checks and health figures as a JSON object"),
            column("environment_json", TEXT, "versions, machine and resources as a JSON object"),
            *status_columns(RUNS_STATUSES),
        ]
    ),
    version=2,
    volatile=("key", "created_at", "finished_at", "mlflow_run_id", "health_json", "environment_json"),
    statuses=RUNS_STATUSES,
    finished=(),
)
"""a row when a job starts and another, with the same key, when it ends; the later one counts."""


PROBLEMS_STATUSES = ("ok", "refused")

PROBLEMS = Table(
    "problems",
    pa.schema(
        [
            key_column("hash of data set, its revision, and the problem's content"),
            DATA_SET,
            column("data_revision", TEXT, "revision or content hash of the data set"),
            column("split", TEXT, "name of the split, empty when there is none"),
            column("problem_id", TEXT, "name of the problem, unique in its data set; null when refused without one"),
            column("question", TEXT, "text of the question"),
            column("choices", pa.list_(TEXT), "texts of the choices in the order shown, A first"),
            column("gold", TEXT, "letter of the correct choice; null when it is not known"),
            column("metadata_json", TEXT, "further facts as a JSON object; no measurement uses them"),
            column("source", TEXT, "file and line, or hub id and row, that the record came from"),
            *status_columns(PROBLEMS_STATUSES),
        ]
    ),
    version=1,
    volatile=("source",),
    statuses=PROBLEMS_STATUSES,
    finished=PROBLEMS_STATUSES,
)
"""every record of a data set, the refused ones included."""


TRIALS = Table(
    "trials",
    pa.schema(
        [
            key_column("hash of the job and the cell"),
            column("run_key", TEXT, "key in `runs` of the job that searched", required=True),
            column("cell_key", TEXT, "the trial's cell in `unlearning`", required=True),
            SCOPE_KEY,
            MODEL,
            DATA_SET,
            column("method", TEXT, "ff2 | lora: which parameters are updated", required=True),
            LORA_RANK,
            column("searcher", TEXT, "grid | bracket", required=True),
            column("trial_index", INT, "position of the rate in the order of trials, from 0", required=True),
            column("lr", FLOAT, "learning rate", required=True),
            column("min_specificity", FLOAT, "percent that specificity must reach after rounding", required=True),
            column("num_problems", INT, "problems behind efficacy and specificity"),
            column("num_tasks_ok", INT, "tasks measured"),
            column("efficacy", FLOAT, "mean efficacy, at most 1"),
            column("efficacy_low", FLOAT, "lower end of its interval"),
            column("efficacy_high", FLOAT, "upper end of its interval"),
            column("specificity", FLOAT, "mean specificity, 0 to 1"),
            column("specificity_low", FLOAT, "lower end of its interval"),
            column("specificity_high", FLOAT, "upper end of its interval"),
            column("is_feasible", BOOL, "whether specificity reaches the bound; null when it is undefined"),
            column("is_selected", BOOL, "whether the search selects this rate"),
            column("decision", TEXT, "complete (all problems) | feasible early | infeasible early | failed"),
            *status_columns(),
        ]
    ),
    version=1,
    volatile=("key", "run_key"),
    finished=(),
)
"""a row per learning rate that a search tried for one model and data set."""
