"""Table `problems`: every record of a data set, the refused ones included."""

from __future__ import annotations

import pyarrow as pa

from fairwitness_schemas import identity
from fairwitness_schemas.table import Table, column, key_column, status_columns

STATUSES = ("ok", "refused")

SCHEMA = pa.schema(
    [
        key_column("hash of data set, its revision, and the problem's content"),
        identity.DATA_SET,
        column("data_revision", pa.string(), "revision or content hash of the data set"),
        column("split", pa.string(), "name of the split, empty when there is none"),
        column("problem_id", pa.string(), "name of the problem, unique in its data set; null when refused without one"),
        column("question", pa.string(), "text of the question"),
        column("choices", pa.list_(pa.string()), "texts of the choices in the order shown, A first"),
        column("gold", pa.string(), "letter of the correct choice; null when it is not known"),
        column("metadata_json", pa.string(), "further facts as a JSON object; no measurement uses them"),
        column("source", pa.string(), "file and line, or hub id and row, that the record came from"),
        *status_columns(STATUSES),
    ]
)
VERSION = 1
VOLATILE = ("source",)

TABLE = Table("problems", SCHEMA, VERSION, VOLATILE, statuses=STATUSES, finished=STATUSES)
