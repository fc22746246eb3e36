"""The tables are what their golden texts say. Set FAIRWITNESS_REGENERATE_GOLDEN=1 to write the texts anew."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from fairwitness_schemas import TABLES, describe

GOLDEN = Path(__file__).parents[2] / "golden" / "schemas"


@pytest.mark.parametrize("name", TABLES)
def test_table_equals_its_golden_text(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FAIRWITNESS_REGENERATE_GOLDEN"):
        path.write_text(describe(TABLES[name]), encoding="utf-8")
    assert describe(TABLES[name]) == path.read_text(encoding="utf-8"), (
        "the table changed: raise its VERSION, then run with FAIRWITNESS_REGENERATE_GOLDEN=1"
    )


def test_there_is_no_golden_text_without_a_table() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_roles_name_columns_and_every_column_is_described(name: str) -> None:
    table = TABLES[name]
    assert table.name == name
    assert {*table.volatile, table.resume_key, "status", "reason"} <= set(table.schema.names)
    assert set(table.finished) <= set(table.statuses)
    assert table.schema.names[0] == "key"
    assert not table.schema.field("key").nullable
    assert not table.schema.field("status").nullable
    assert not table.schema.field(table.resume_key).nullable
    for field in table.schema:
        text = field.metadata[b"description"].decode()
        assert text
        assert "\n" not in text


def test_description_changes_with_every_part_of_a_table() -> None:
    from dataclasses import replace

    table = TABLES["cots"]
    renamed = pa.schema([table.schema.field(0).with_name("id"), *list(table.schema)[1:]])
    nullable = pa.schema([table.schema.field(0).with_nullable(True), *list(table.schema)[1:]])
    texts = {
        describe(replace(table, **change))
        for change in (
            {},
            {"version": 2},
            {"schema": renamed},
            {"schema": nullable},
            {"volatile": ("agree",)},
            {"place_key": "problem_key"},
        )
    }
    assert len(texts) == 6
