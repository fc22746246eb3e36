"""The JSON Schemas that editors use are those of the configuration classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "schemas" / "config"


@pytest.mark.parametrize("job", sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.schema.json")))
def test_schema_file_is_current(job: str) -> None:
    from fairwitness.jobs import JOBS

    stored = json.loads((FOLDER / f"{job}.schema.json").read_text(encoding="utf-8"))
    remedy = f"write it anew: fairwitness schema {job} > schemas/config/{job}.schema.json"
    assert stored == JOBS[job].config_class.model_json_schema(), remedy


def test_every_key_has_a_description() -> None:
    schema = json.loads((FOLDER / "fur_sweep.schema.json").read_text(encoding="utf-8"))
    parts = {"FurSweepConfig": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part.get("properties", {}).items()
        if not {"description", "const", "$ref"} & set(value)
    ]
    assert bare == []
