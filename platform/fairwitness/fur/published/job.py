"""The import: published files become a run directory of their own, which reports and exports like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fairwitness.config import Config
from fairwitness.errors import StoreError
from fairwitness.fur.imported import CELL_RATES, IMPORT_JOB
from fairwitness.fur.published.assemble import Assembled, assemble
from fairwitness.fur.published.reading import PublishedFile, read_published
from fairwitness.fur.published.rows import Row
from fairwitness.problems.draws import Seed
from fairwitness.problems.records import Refused
from fairwitness.records.job import JobRun, Reporter
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress
from fairwitness.records.run_dir import RunDirectory, RunName, run_rows
from fairwitness.records.store import Store
from fairwitness.records.tracker import TrackingConfig

JOB = IMPORT_JOB


class ImportConfig(Config):
    """An import of published results."""

    name: RunName
    """Name of the run and of its directory."""
    files: tuple[str, ...] = Field(min_length=1)
    """The files."""
    model: str | None = Field(None, min_length=1)
    """The model, where the files' names do not tell it."""
    data_set: str | None = Field(None, min_length=1)
    """The data set, where the files' names do not tell it."""
    lr: float | None = Field(None, gt=0)
    """The learning rate, where the files' names do not tell it."""
    seed: Seed = 0
    """Seed of the resamples behind intervals."""
    dir: str = Field("results", min_length=1)
    """Folder of all runs; this run is in `<dir>/<name>`."""


@dataclass(frozen=True)
class ImportResult:
    """What became of an import.

    Attributes:
        run: Its directory.
        exit_code: 0 done, 1 some judgements have no verdict.
        files: The files as read.
        refused: Every line that was not taken.
        num_rows: Rows per table.
        cell_keys: Cells of the rows.
        seed: Seed of the resamples behind intervals.
        report: The report page.
    """

    run: RunDirectory
    exit_code: int
    files: tuple[PublishedFile, ...]
    refused: tuple[Refused, ...]
    num_rows: Mapping[str, int]
    cell_keys: tuple[str, ...]
    seed: int
    report: Path | None


def import_published(config: ImportConfig, *, report: Reporter) -> ImportResult:
    """Reads the files, all together, and stores what they hold. The same files again change nothing.

    Args:
        config: What to import, and where to.
        report: Makes the report of the run directory.

    Raises:
        DataError: A file cannot be read as a whole; nothing is stored then.
        StoreError: The directory holds another kind of run, or cannot be written.
    """
    files = _read(config)
    found = assemble(files)
    refused = [(file.data_set, fault) for file in files for fault in file.refused] + found.refused
    found.rows["problems"] += [_refused_row(found.revision, data_set, fault) for data_set, fault in refused]
    run = RunDirectory(config.dir, config.name)
    with run.opened() as store:
        _must_be_ours(run, store)
        job = JobRun(
            JOB, config, run, store, TrackingConfig(enabled=False),
            count=lambda: _counts(found, len(refused)),
            models=[f"{name}@published" for name in found.models],
            data_sets=[f"{name}@{found.revision}" for name in found.data_sets],
            scope_keys=list(found.scope_keys),
            cell_keys=list(found.cell_keys),
        )  # fmt: skip
        lines = Counter({file.shape: 0 for file in files})
        for file in files:
            lines[file.shape] += len(file.taken)
        job.health[CELL_RATES] = found.rates
        job.health |= {f"lines of {shape}": number for shape, number in sorted(lines.items())}
        with job.started():
            for table, rows in found.rows.items():
                store.append(table, _new(store, table, rows))
        ended = job.finish(report)
    page = ended.report.files[0] if ended.report.files else None
    faults = sorted((fault for _, fault in refused), key=lambda fault: (fault.source, fault.line))
    counts = {table: len(rows) for table, rows in found.rows.items() if rows}
    return ImportResult(run, ended.exit_code, files, tuple(faults), counts, tuple(found.cell_keys), config.seed, page)


def _read(config: ImportConfig) -> tuple[PublishedFile, ...]:
    given: dict[str, Any] = {"model": config.model, "data_set": config.data_set, "lr": config.lr}
    files = []
    with Progress(len(config.files), "files") as progress:
        for name in config.files:
            files.append(read_published(Path(name), **given))
            progress.advance(1)
    # The same file named twice is one file.
    return tuple({file.content_hash + str(file.path.resolve()): file for file in files}.values())


def _must_be_ours(run: RunDirectory, store: Store) -> None:
    others = [row["job"] for row in run_rows(store) if row["job"] != JOB]
    if others:
        raise StoreError(f"{run.path}: holds a run of {others[-1]}; give published results a directory of their own")


def _new(store: Store, table: str, rows: Sequence[Row]) -> list[Row]:
    done = store.finished_keys(table)
    name = "task_key" if table == "unlearning" else "key"
    return [row for row in rows if row[name] not in done]


def _counts(found: Assembled, num_refused: int) -> Counter[str]:
    tasks = len({row["task_key"] for row in found.rows["unlearning"]})
    failed = sum(row["status"] == "failed" for row in found.rows["judgements"])
    return Counter(ok=tasks, failed=failed, refused=num_refused)


def _refused_row(revision: str, data_set: str, fault: Refused) -> Row:
    where = f"{fault.source}:{fault.line}"
    return {
        "key": key_of(data_set=data_set, revision=revision, source=where, field=fault.field, reason=fault.reason),
        "data_set": data_set,
        "data_revision": revision,
        "source": where,
        "status": "refused",
        "reason": str(fault),
    }
