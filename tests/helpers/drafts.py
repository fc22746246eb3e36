"""Small measurements of drafts: files, configurations, models with room, and runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fairwitness.config import validate
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.measure import DraftFaithfulness
from fairwitness.experiment.data_set import Loader
from fairwitness.experiment.job import JobResult, Report
from fairwitness.experiment.measure import Supplies, run_measure
from tests.helpers.sweeps import merged

DRAFT = (
    "Let me look at the choices. Foxes sleep in dens. Wait, is that true for owls? They sleep in trees. "
    "Alternatively, it is about bears. Bears sleep in caves. Let me check the first choice again. So the answer is B."
)
"""A draft of three blocks that concludes B."""


def write_drafts(path: Path, drafts: Iterable[Mapping[str, Any] | str]) -> Path:
    """Writes drafts as JSONL; a text is a line as it is."""
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in drafts]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def draft_settings(output: Path, model: Path, data: Path, drafts: Path | None, /, **changes: Any) -> dict[str, Any]:
    """Plain settings of a small measurement without Ray and MLflow; `changes` are merged, mappings key by key."""
    base: dict[str, Any] = {
        "name": "drafts",
        "models": [{"model": str(model), "name": "tiny"}],
        "data_sets": [{"data_set": "local", "name": "animals", "path": str(data), "fields": {"id": "id"}}],
        "own_drafts": drafts is None,
        "draft_files": [] if drafts is None else [{"name": "other", "path": str(drafts)}],
        "limits": {"draft": 16, "continuation": 12, "answer": 8},
        "pool": {"kind": "local"},
        "output": {"dir": str(output)},
        "tracking": {"enabled": False},
    }
    return merged(base, changes)


def run_drafts(
    config: DraftFaithfulnessConfig, report: Callable[[Path], Report], loaders: Mapping[str, Loader] | None = None
) -> JobResult:
    """Measures and reports."""
    return run_measure(DraftFaithfulness(config, Supplies(loaders or {})), lambda measure: report(measure.run.path))


def run_plain(plain: Mapping[str, Any]) -> Any:
    """Measures without a report."""
    return run_drafts(validate(DraftFaithfulnessConfig, plain, "test"), lambda path: Report((path,), ()))


def with_context(folder: Path, to: Path, context: int) -> Path:
    """A copy of a tiny model that can read more tokens."""
    shutil.copytree(folder, to)
    path = to / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": context}))
    return to
