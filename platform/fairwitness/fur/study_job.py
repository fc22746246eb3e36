"""What every job that measures studies records of itself: its row in `runs`, counts, self-checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from fairwitness.experiment.job import JobRun
from fairwitness.fur.config import StudyConfig
from fairwitness.fur.study import FurStudy
from fairwitness.fur.study_run import StudyRun, iterate_cells
from fairwitness.fur.tracking import log_cells
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store


class StudyJob(JobRun):
    """A job over studies; its tasks are those of their cells."""

    def __init__(
        self, job: str, config: StudyConfig, studies: Sequence[FurStudy], run: RunDirectory, store: Store
    ) -> None:
        """Prepares; nothing is written yet. See `JobRun`."""
        self.studies = studies
        super().__init__(
            job, config, run, store, config.tracking,
            count=self._count_tasks,
            studies=studies,
            cell_keys=list(iterate_cells(studies)),
        )  # fmt: skip

    def log_cell(self, cell_key: str) -> None:
        """Logs a cell to MLflow as the store has it now."""
        log_cells(self.tracker, self.dir, [cell_key])

    def note_health(self, part: StudyRun) -> None:
        """Keeps a study's self-checks for the job's row."""
        self.health |= {f"{part.study.label}: {name}": _as_json(c) for name, c in part.client.health.items()}

    def _count_tasks(self) -> Counter[str]:
        where = pc.field("cell_key").isin(list(iterate_cells(self.studies)))
        rows = self.store.read("unlearning", ["task_key", "status"], where).to_pylist()
        counts = Counter({row["task_key"]: row["status"] for row in rows}.values())
        data = {study.data.loaded.name: len(study.data.loaded.refused) for study in self.studies}
        counts["refused"] = sum(data.values())
        return counts


def _as_json(check: Any) -> dict[str, Any]:
    return {**asdict(check), "ok": check.ok}
