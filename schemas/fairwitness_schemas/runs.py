"""Table `runs`: a row when a job starts and another, with the same key, when it ends; the later one counts."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas.table import Table, column, key_column, status_columns

STATUSES = ("running", "done", "interrupted", "failed")

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

SCHEMA = pa.schema(
    [
        key_column("id of the run"),
        column("name", pa.string(), "name of the run and of its directory", required=True),
        column("job", pa.string(), "which job it is, for example fur_sweep", required=True),
        column("created_at", _TIME, "when the job started, UTC", required=True),
        column("finished_at", _TIME, "when the job ended, UTC; null while it runs"),
        column("config_json", pa.string(), "resolved configuration as JSON, credentials removed", required=True),
        column("config_fingerprint", pa.string(), "hash of the resolved configuration"),
        column("code_revision", pa.string(), "hash of the source files that decide the results"),
        column("models", _TEXTS, "the models, each name@revision"),
        column("data_sets", _TEXTS, "the data sets, each name@revision"),
        column("scope_keys", _TEXTS, "the scope keys of the rows that belong to the run"),
        column("cell_keys", _TEXTS, "the cell keys of the rows that belong to the run"),
        column("num_ok", pa.int64(), "tasks measured, those of earlier runs included"),
        column("num_skipped", pa.int64(), "tasks skipped with a reason"),
        column("num_failed", pa.int64(), "tasks failed with a reason"),
        column("num_refused", pa.int64(), "problem records refused with a reason"),
        column("exit_code", pa.int32(), "exit code of the job; null while it runs"),
        column("mlflow_run_id", pa.string(), "id of the parent run in MLflow; null when tracking was off or failed"),
        column("health_json", pa.string(), "self-checks and health figures as a JSON object"),
        column("environment_json", pa.string(), "versions, machine and resources as a JSON object"),
        *status_columns(STATUSES),
    ]
)
VERSION = 1
VOLATILE = ("key", "created_at", "finished_at", "mlflow_run_id", "health_json", "environment_json")

TABLE = Table("runs", SCHEMA, VERSION, VOLATILE, statuses=STATUSES, finished=())
