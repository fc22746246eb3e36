"""What a table is, and how its columns are declared and printed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

TEXT, FLOAT, INT, BOOL = pa.string(), pa.float64(), pa.int32(), pa.bool_()

ITEM_STATUSES = ("ok", "skipped", "failed")
"""Status of a measured item."""

DESCRIPTION = b"description"
"""Key of the field metadata that holds the one-line description of a column."""


@dataclass(frozen=True)
class Table:
    """One table of results.

    Attributes:
        name: Name of the table and of its folder in the store.
        schema: Columns with types; a column that may not be null is marked so; the description with units is in the
            field metadata.
        version: Number of the schema; it grows whenever a column or its meaning changes.
        volatile: Columns that may differ between runs that are otherwise equal.
        statuses: The values that `status` can take.
        finished: The statuses of work that is not done again.
        resume_key: Column that names one unit of work; several rows can belong to one unit.
        place_key: Column that names which units of work replace one another: of all that share it, only the last
            finished one counts. None, or null in a row: every unit is a place of its own.
    """

    name: str
    schema: pa.Schema
    version: int
    volatile: tuple[str, ...]
    statuses: tuple[str, ...] = ITEM_STATUSES
    finished: tuple[str, ...] = ("ok", "skipped")
    resume_key: str = "key"
    place_key: str | None = None


def column(name: str, type_: pa.DataType, description: str, *, required: bool = False) -> pa.Field:
    """Declares a column: `required` means never null, `description` is one line with units."""
    return pa.field(name, type_, nullable=not required, metadata={DESCRIPTION: description.encode()})


def key_column(description: str) -> pa.Field:
    """The column `key` that every table starts with: never null, unique among the rows that count."""
    return column("key", pa.string(), description, required=True)


def status_columns(statuses: tuple[str, ...] = ITEM_STATUSES) -> tuple[pa.Field, pa.Field]:
    """The columns `status` and `reason` that every table ends with."""
    return (
        column("status", pa.string(), " | ".join(statuses), required=True),
        column("reason", pa.string(), "why the status is not the good one; null when there is nothing to say"),
    )


def describe(table: Table) -> str:
    """The table as text: version, roles of columns, then a line per column. Equal texts mean equal tables."""
    roles = [f"resume key: {table.resume_key}"]
    if table.place_key is not None:
        roles.append(f"place key: {table.place_key}")
    roles += [f"finished: {', '.join(table.finished)}", f"volatile: {', '.join(table.volatile)}"]
    lines = [f"table {table.name}, version {table.version}", "; ".join(roles)]
    for field in table.schema:
        null = "" if field.nullable else " not null"
        lines.append(f"{field.name}: {field.type}{null} -- {field.metadata[DESCRIPTION].decode()}")
    return "\n".join(lines) + "\n"


# Columns that say what a row is about, the same in every table that has them.
SCOPE_KEY = column("scope_key", TEXT, "hash of model, data, prompt style, seed and code revision", required=True)
MODEL = column("model", TEXT, "name or path of the model as configured", required=True)
MODEL_REVISION = column("model_revision", TEXT, "revision or content hash of the weights")
DATA_SET = column("data_set", TEXT, "name of the data set", required=True)
PROBLEM_ID = column("problem_id", TEXT, "name of the problem", required=True)
PROBLEM_KEY = column("problem_key", TEXT, "key in `problems`", required=True)
LORA_RANK = column("lora_rank", INT, "rank of the adapters; null for ff2")
SEED = column("seed", pa.int64(), "seed of the run")
