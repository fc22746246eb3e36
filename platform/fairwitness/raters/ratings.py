"""Takes files of ratings into a run's table `ratings`. A bad line is named, the rest is taken."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from fairwitness.analysis.ratings import bin_of, parse_rating
from fairwitness.config import Config
from fairwitness.errors import DataError
from fairwitness.experiment.job import EXIT_DONE, EXIT_SOME_FAILED, JobRun, Report
from fairwitness.problems.readers import Entry, TextFormat, read_csv, read_file
from fairwitness.problems.records import Record, Refused
from fairwitness.raters.steps import Step, steps_by_item
from fairwitness.records.config import TrackingConfig
from fairwitness.records.keys import key_of
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store

ITEM, RATING, RATER = "item", "rating", "rater"
SHEET_NAME = "steps.csv"
"""The exported sheet; under this name a file does not say who filled it in."""
_DELIMITERS = (",", ";", "\t")


class Rating(NamedTuple):
    """One line of a file: who rated which step how; `rating` is None where the cell is empty."""

    record: Record
    item: str
    rater: str
    rating: int | None


class RatingsFile(NamedTuple):
    """What a file holds.

    Attributes:
        ratings: Its lines, those without a rating included.
        refused: Lines that cannot be used.
        items: Names of all steps that it has a line for, refused lines included.
    """

    ratings: list[Rating]
    refused: list[Refused]
    items: frozenset[str]


def read_ratings(path: Path, *, rater: str | None = None) -> RatingsFile:
    """Reads one file. Further columns, such as the question, are passed over.

    Args:
        path: CSV with the columns `item` and `rating` and, if need be, `rater`; commas, semicolons or tabs.
        rater: Who rated, where the file does not say; without it the file's name, unless it is the sheet's.

    Raises:
        DataError: The file cannot be read, has other columns (the message says which), no line, or no rater.
    """
    found = read_file(path, _read, TextFormat("utf-8", csv_header=True))
    if found.records:
        _check_columns(path, list(found.records[0].values))
    elif not found.refused:
        raise DataError(f"{path}: holds no rating; it needs a header with {ITEM} and {RATING}, and a line per step")
    default = rater or (path.stem if path.name != SHEET_NAME else None)
    lines = [_rating(path, record, default) for record in found.records]
    faults = [line for line in lines if isinstance(line, Refused)]
    items = frozenset(map(_item, found.records)) - {""}
    return RatingsFile([line for line in lines if isinstance(line, Rating)], [*found.refused, *faults], items)


def _read(source: str, data: bytes, form: TextFormat) -> Iterator[Entry]:
    header = io.BytesIO(data).readline().decode(form.encoding, errors="replace")
    return read_csv(source, data, form, delimiter=max(_DELIMITERS, key=header.count))


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in (ITEM, RATING) if name not in names]
    if not missing:
        return
    if "dp" in names and "target_step_idx" in names:
        raise DataError(
            f"{path}: is a study of the published implementation, with its own steps; "
            "use fairwitness import-published for it"
        )
    raise DataError(
        f"{path}: has no column {missing[0]!r} (columns: {', '.join(names)}); ratings need {ITEM!r} and {RATING!r}, as "
        "in the exported sheet and in what the form saves"
    )


def _item(record: Record) -> str:
    return str(record.values[ITEM]).strip().casefold()


def _rating(path: Path, record: Record, default: str | None) -> Rating | Refused:
    item = _item(record)
    rater = (record.values.get(RATER) or "").strip() or default
    if rater is None:
        raise DataError(
            f"{path}: line {record.line} does not say who rated; fill in the column {RATER!r}, rename the file to the "
            "rater's name, or give --rater"
        )
    if not item:
        return record.refuse(ITEM, "is empty; it must hold the name of a step of the study")
    try:
        return Rating(record, item, rater, parse_rating(record.values[RATING]))
    except ValueError as error:
        return record.refuse(RATING, str(error))


JOB = "study_import"
MAX_NAMED = 200
"""Refused lines that the job's record names; all are printed."""

Row = dict[str, Any]


class StudyImportConfig(Config):
    """An import of ratings."""

    run: str = Field(min_length=1)
    """Directory of the run whose steps were rated."""
    files: tuple[str, ...] = Field(min_length=1)
    """Files of ratings."""
    rater: str | None = Field(None, min_length=1)
    """Who rated, where a file does not say."""


class Imported(NamedTuple):
    """What became of an import.

    Attributes:
        num_new: Ratings that are new in the table.
        num_known: Lines that the table held already, with the same rating.
        num_without: Steps of the files that have no rating now, of nobody; one whose only rating was refused has none.
        raters: Who rated, with how many ratings each.
        refused: Lines that were not taken, by file and line.
    """

    num_new: int
    num_known: int
    num_without: int
    raters: Mapping[str, int]
    refused: tuple[Refused, ...]

    @property
    def exit_code(self) -> int:
        """1 where a line was refused, else 0."""
        return EXIT_SOME_FAILED if self.refused else EXIT_DONE


def import_ratings(config: StudyImportConfig) -> Imported:
    """Reads the files and stores their ratings. Doing it twice changes nothing.

    A line is refused when its step is not of this run, its rating is none of the scale, or its rater has rated the step
    before, in this import or an earlier one, differently or on another line of the same import.

    Raises:
        StoreError: There is no run, or another job writes it.
        DataError: A file as a whole cannot be read, or no line is of a step of this run; nothing is stored then.
    """
    run = RunDirectory.at(config.run)
    files = [read_ratings(Path(name), rater=config.rater) for name in config.files]
    read = [rating for file in files for rating in file.ratings]
    with run.opened() as store:
        steps = steps_by_item(store, {item for file in files for item in file.items})
        taking = _Taking(steps, stored_ratings(store))
        for rating in read:
            taking.take(rating)
        if not any(rating.item in steps for rating in read):
            raise DataError(_no_step(config, read, files))
        refused = _in_order([*(fault for file in files for fault in file.refused), *taking.refused])
        num_without = len(set(steps) - taking.rated)
        counts = Counter(ok=len(taking.rows), skipped=num_without, refused=len(refused))
        job = JobRun(
            JOB,
            config,
            run,
            store,
            TrackingConfig(enabled=False),
            count=lambda: counts,
            is_followup=True,
            announce=False,
        )
        job.health["refused lines"] = [str(fault) for fault in refused[:MAX_NAMED]]
        with job.started():
            store.append("ratings", taking.rows)
        job.finish(lambda _path: Report((), ()), some_failed=bool(refused))
    raters = Counter(row["rater"] for row in taking.rows)
    return Imported(len(taking.rows), taking.num_known, num_without, dict(raters), refused)


def stored_ratings(store: Store) -> dict[tuple[str, str], Row]:
    """The rows of `ratings` that hold a rating, by item and rater."""
    rows = store.read("ratings").to_pylist()
    return {(row["item_key"], row["rater"]): row for row in rows if row["rating"] is not None}


class _Taking:
    """Goes through ratings in order: rows for the table, and what is refused."""

    def __init__(self, steps: Mapping[str, Step], stored: Mapping[tuple[str, str], Row]) -> None:
        self.steps, self.stored = steps, stored
        self.rows: list[Row] = []
        self.refused: list[Refused] = []
        self.num_known = 0
        self.rated = {item for item, _rater in stored}
        self._seen: dict[tuple[str, str], Rating] = {}

    def take(self, rating: Rating) -> None:
        step = self.steps.get(rating.item)
        place = (rating.item, rating.rater)
        earlier = self._seen.get(place)
        known = self.stored.get(place)
        if step is None:
            self._refuse(rating, ITEM, f"{rating.item!r} is no step of this run; was the form made from another run?")
        elif rating.rating is None:
            return
        elif earlier is not None:
            self._refuse(rating, ITEM, f"{rating.rater} rates {rating.item} twice; {_place(earlier)} counts")
        elif known is not None and known["rating"] != rating.rating:
            was = f"rated it {known['rating']} before ({known['source']}); that counts"
            self._refuse(rating, RATING, f"{rating.rater} {was}")
        else:
            self._seen[place] = rating
            self.rated.add(rating.item)
            self.num_known += known is not None
            if known is None:
                self.rows.append(rating_row(step, rating.rater, rating.rating, _place(rating)))

    def _refuse(self, rating: Rating, field: str, reason: str) -> None:
        self.refused.append(rating.record.refuse(field, reason))


def rating_row(step: Step, rater: str, rating: int, source: str) -> Row:
    """Row of `ratings` for one step as one rater rated it."""
    return {
        "key": key_of(item=step.item, rater=rater),
        "item_key": step.item,
        "scope_key": step.scope_key,
        "cell_key": step.cell_key,
        "model": step.model,
        "data_set": step.data_set,
        "problem_id": step.problem_id,
        "cot_step_index": step.cot_step_index,
        "ff_soft": step.ff_soft,
        "bin": None if step.ff_soft is None else bin_of(step.ff_soft),
        "rater": rater,
        "rating": rating,
        "source": source,
        "status": "ok",
        "reason": None if step.ff_soft is not None else "the step has no ff-soft",
    }


def _place(rating: Rating) -> str:
    return f"{rating.record.source}:{rating.record.line}"


def _in_order(refused: Iterable[Refused]) -> tuple[Refused, ...]:
    return tuple(sorted(refused, key=lambda fault: (fault.source, fault.line)))


def _no_step(config: StudyImportConfig, read: Sequence[Rating], files: Sequence[RatingsFile]) -> str:
    if not read:
        return f"no line can be read; the first fault: {next(fault for file in files for fault in file.refused)}"
    return (
        f"{config.run}: none of the {len(read)} lines is of a step of this run ({_place(read[0])}: {read[0].item!r}); "
        "give the run that the study was exported from"
    )
