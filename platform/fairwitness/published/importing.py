"""The import: published files become a run directory of their own, which reports and exports like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import Field

from fairwitness.analysis.ratings import bin_of, item_name, parse_rating
from fairwitness.analysis.runs import CELL_RATES, IMPORT_JOB
from fairwitness.config import Config, fingerprint
from fairwitness.errors import StoreError
from fairwitness.experiment.job import JobRun, Reporter
from fairwitness.judges.published import NO_VERDICT
from fairwitness.problems.draws import Seed
from fairwitness.problems.records import Refused
from fairwitness.published.lines import JudgementLine, MistakeLine, ResultLine, StudyLine
from fairwitness.published.reading import Origin, PublishedFile, Taken, read_published
from fairwitness.published.rows import Cot, Problem, Row, task_key, unlearning_rows
from fairwitness.records.config import RunName, TrackingConfig
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress
from fairwitness.records.run_dir import RunDirectory, run_rows
from fairwitness.records.store import Store

KIND = "cot_after"


@dataclass
class Assembled:
    """Rows of our tables, and what did not fit with the rest.

    Attributes:
        rows: Table name to rows.
        refused: Lines that contradict or repeat another one, with their data set.
        models: Names of the models.
        data_sets: Names of the data sets.
        scope_keys: Every scope.
        cell_keys: Every cell.
        rates: Learning rate of each cell, where files tell it.
        revision: Hash of all files; the revision of problems and data sets.
    """

    revision: str
    rows: dict[str, list[Row]] = field(default_factory=dict)
    refused: list[tuple[str, Refused]] = field(default_factory=list)
    models: dict[str, None] = field(default_factory=dict)
    data_sets: dict[str, None] = field(default_factory=dict)
    scope_keys: dict[str, None] = field(default_factory=dict)
    cell_keys: dict[str, None] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)


def assemble(files: Sequence[PublishedFile]) -> Assembled:
    """The rows of some files together. The same files give the same rows, in whatever order they are named.

    Problems are the same where data set, question and choices are. A file that does not tell seed or content words
    (judgements, study) belongs to the one scope that it fits, or has its own. Of CoTs, the text of a result counts
    before the sentences of a mistake, and these before those of the study.
    """
    revision = fingerprint(sorted(file.content_hash for file in files))
    order = {"results": 0, "mistakes": 1, "study": 2, "judgements": 3}
    ordered = sorted(files, key=lambda file: (order[file.shape], file.content_hash))
    builder = _Builder(revision, [taken.origin for file in files for taken in file.taken])
    for file in ordered:
        for taken in file.taken:
            builder.add(taken)
    return builder.finish()


class _Builder:
    def __init__(self, revision: str, origins: Iterable[Origin]) -> None:
        self.found = Assembled(revision)
        self._origins = list(dict.fromkeys(origins))
        self._problems: dict[tuple[str, str, tuple[str, ...]], Problem] = {}
        self._by_id: dict[tuple[str, str], tuple[Problem, str]] = {}
        self._cots: dict[tuple[str, str], tuple[Cot, str]] = {}
        self._seen: dict[tuple[str, ...], str] = {}
        self._results: list[tuple[Taken, Cot, str]] = []
        self._judgements: list[tuple[Taken, Problem | None, str]] = []
        self._rated: list[tuple[Taken, Cot]] = []

    def add(self, taken: Taken) -> None:
        """Takes a line in, or refuses it."""
        scope_key = self._scope(taken.origin)
        reason = (
            self._judged(taken, scope_key) if isinstance(taken.line, JudgementLine) else self._cot(taken, scope_key)
        )
        if reason is not None:
            self.found.refused.append((taken.origin.data_set, taken.record.refuse("", reason)))
            return
        self.found.models[taken.origin.model] = self.found.data_sets[taken.origin.data_set] = None
        self.found.scope_keys[scope_key] = None

    def finish(self) -> Assembled:
        """All rows; now every problem has its id and its gold answer."""
        rows = self.found.rows
        rows["problems"] = [problem.row() for problem in self._problems.values()]
        rows["cots"] = [cot.row() for cot, _ in self._cots.values()]
        rows["cot_steps"] = [row for cot, _ in self._cots.values() for row in cot.step_rows()]
        rows["unlearning"] = [
            row
            for taken, cot, cell_key in self._results
            for row in unlearning_rows(_as_result(taken), cot, taken.origin, cell_key)
        ]
        rows["judgements"] = [self._judgement_row(*one) for one in self._judgements]
        rows["ratings"] = [self._rating_row(*one) for one in self._rated]
        return self.found

    def _scope(self, origin: Origin) -> str:
        fitting = {one.variant for one in self._origins if one.seed is not None and origin.fits(one)}
        variant = fitting.pop() if origin.seed is None and len(fitting) == 1 else origin.variant
        return key_of(published=list(variant), revision=self.found.revision)

    def _cell(self, origin: Origin, scope_key: str) -> str:
        key = key_of(scope=scope_key, method=origin.method, lr=origin.lr)
        self.found.cell_keys[key] = None
        if origin.lr is not None:
            self.found.rates[key] = origin.lr
        return key

    def _cot(self, taken: Taken, scope_key: str) -> str | None:
        line = taken.line
        assert not isinstance(line, JudgementLine)
        problem = self._problem(taken)
        if isinstance(problem, str):
            return problem
        is_study = isinstance(line, StudyLine)
        index = line.target_step_idx if isinstance(line, StudyLine) else line.step_idx
        text = line.initial_cot if isinstance(line, ResultLine) else None
        sentences = tuple(line.steps if isinstance(line, StudyLine) else line.segmented_cot)
        cot, place = self._cots.setdefault(
            (scope_key, problem.key),
            (Cot(problem, scope_key, taken.origin, text, sentences, set(), is_sample=is_study), taken.place),
        )
        is_same = cot.sentences == sentences
        if not is_same and not is_study:
            return f"the CoT is another one than in {place}"
        kind = type(line).__name__
        if isinstance(line, StudyLine) and line.rating is not None:
            kind = f"rating of {_rater(taken)}"
        again = self._repeats(taken, kind, scope_key, problem.key, str(index), str(taken.origin.lr))
        if again:
            return again
        if is_same:
            cot.used.add(index)
        if isinstance(line, ResultLine):
            cot.result = cot.result or line
            self._results.append((taken, cot, self._cell(taken.origin, scope_key)))
        elif isinstance(line, StudyLine):
            cot.predicted = line.predicted_answer if is_same else cot.predicted
            if parse_rating(line.rating or "") is not None:
                self._rated.append((taken, cot))
        return None

    def _problem(self, taken: Taken) -> Problem | str:
        """The line's problem, or why it cannot be."""
        line = taken.line
        gold = None
        if isinstance(line, StudyLine):
            problem_id, question, gold = line.ID, line.Question, ascii_uppercase[line.correct_answer]
        else:
            assert isinstance(line, ResultLine | MistakeLine)
            problem_id, question = line.id, line.question
            gold = line.correct if isinstance(line, ResultLine) else None
        data_set = taken.origin.data_set
        named = self._by_id.get((data_set, problem_id))
        if named and (named[0].question, named[0].choices) != (question, line.choices):
            return f"id {problem_id!r} has another question or other options than in {named[1]}"
        problem = self._known(data_set, question, line.choices, problem_id)
        if gold is not None and problem.gold not in (None, gold):
            return f"the correct answer is {gold}, elsewhere it is {problem.gold}"
        problem.gold = problem.gold or gold
        self._by_id.setdefault((data_set, problem.problem_id), (problem, taken.place))
        return problem

    def _known(self, data_set: str, question: str, choices: tuple[str, ...], problem_id: str) -> Problem:
        made = Problem(data_set, question, choices, problem_id, None, self.found.revision)
        return self._problems.setdefault((data_set, question, choices), made)

    def _judged(self, taken: Taken, scope_key: str) -> str | None:
        line = taken.line
        assert isinstance(line, JudgementLine)
        again = self._repeats(taken, "judgement", scope_key, line.instance_id, line.model, str(taken.origin.lr))
        if again:
            return again
        parts = line.question_and_choices()
        problem = None if parts is None else self._known(taken.origin.data_set, *parts, line.problem)
        self._judgements.append((taken, problem, self._cell(taken.origin, scope_key)))
        return None

    def _repeats(self, taken: Taken, *what: str) -> str | None:
        first = self._seen.setdefault(what, taken.place)
        return None if first == taken.place else f"says again what {first} says"

    def _judgement_row(self, taken: Taken, problem: Problem | None, cell_key: str) -> Row:
        line = taken.line
        assert isinstance(line, JudgementLine)
        judge_key = key_of(judge=line.model, template=line.template)
        item = task_key(cell_key, problem, line.step_idx) if problem else key_of(cell=cell_key, item=line.instance_id)
        return {
            "key": key_of(item=item, kind=KIND, judge=judge_key),
            "item_key": item,
            "kind": KIND,
            "scope_key": self._scope(taken.origin),
            "cell_key": cell_key,
            "model": taken.origin.model,
            "data_set": taken.origin.data_set,
            "problem_id": problem.problem_id if problem else line.problem,
            "cot_step_index": line.step_idx,
            "judge": line.model,
            "judge_key": judge_key,
            "verdict": line.verdict,
            "reply": line.response,
            "status": "failed" if line.verdict is None else "ok",
            "reason": NO_VERDICT if line.verdict is None else None,
        }

    def _rating_row(self, taken: Taken, cot: Cot) -> Row:
        line = taken.line
        assert isinstance(line, StudyLine)
        rater = _rater(taken)
        item = item_name(key_of(scope=cot.scope_key, problem=cot.problem.key, cot_step=line.target_step_idx))
        return {
            "key": key_of(item=item, rater=rater),
            "item_key": item,
            "scope_key": cot.scope_key,
            "model": taken.origin.model,
            "data_set": taken.origin.data_set,
            "problem_id": cot.problem.problem_id,
            "cot_step_index": line.target_step_idx,
            "ff_soft": line.dp,
            "bin": bin_of(line.dp),
            "rater": rater,
            "rating": parse_rating(line.rating or ""),
            "source": taken.place,
            "status": "ok",
        }


def _rater(taken: Taken) -> str:
    # The published file does not say who rated; its name stands for them.
    return Path(taken.record.source).stem


def _as_result(taken: Taken) -> ResultLine:
    assert isinstance(taken.line, ResultLine)
    return taken.line


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
