"""Changed steps from a file, laid on the steps of a run's CoTs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from fairwitness.errors import DataError
from fairwitness.fur.baselines.altered import NotAltered
from fairwitness.fur.baselines.config import FileTexts
from fairwitness.fur.baselines.step_file import Entry, StepFile, StepLine, read_step_file
from fairwitness.fur.baselines.step_texts import StepText, normal
from fairwitness.fur.baselines.writers import ProblemTexts, Purpose
from fairwitness.fur.cots import CotRecord
from fairwitness.fur.study import Study
from fairwitness.records.keys import key_of


class FileWriter:
    """Steps from a file.

    Attributes:
        ignored: Lines about problems that no data set of the run has, as `file:line`.
    """

    def __init__(self, config: FileTexts, studies: Sequence[Study]) -> None:
        """Reads the file.

        Args:
            config: Which file.
            studies: The run's studies.

        Raises:
            DataError: See `read_step_file`; or a line is about a problem that no data set of the run has.
        """
        self.file: StepFile = read_step_file(config.path)
        self._names = {study.scope_key: _Names(study) for study in studies}
        known = self._names.values()
        self.ignored = [e.where for e in self.file.entries if not any(names.problem_id(e.line) for names in known)]
        if self.ignored and config.unknown_problems == "error":
            first = next(entry for entry in self.file.entries if entry.where == self.ignored[0])
            raise DataError(
                f"{config.path}: line {first.where.rpartition(':')[2]}: problem_id {first.line.problem_id!r} is no "
                f"problem of this run ({len(self.ignored)} such lines); mend the id, or set texts.unknown_problems: "
                "ignore"
            )

    @cached_property
    def key(self) -> str:
        """Hash of what the file says."""
        return key_of(file=self.file.content_hash)

    def write(self, study: Study, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`. A line that belongs to no step of its problem's CoT is a stray.

        A line with `original` belongs to the step that says the same, white space aside: the one at its index, else
        the only one. Any other line belongs to the step at its index.
        """
        by_problem: dict[str, list[Entry]] = {}
        for entry in self.file.entries:
            problem_id = self._names[study.scope_key].problem_id(entry.line)
            if problem_id is not None:
                by_problem.setdefault(problem_id, []).append(entry)
        for record in records:
            yield _laid(record, by_problem.get(record.problem.problem_id, []), purpose)


def _laid(record: CotRecord, entries: Sequence[Entry], purpose: Purpose) -> ProblemTexts:
    texts: dict[int, StepText] = {}
    strays = []
    for entry in entries:
        index = _step_of(record, entry)
        if isinstance(index, str) or index in texts:
            reason = index if isinstance(index, str) else f"step {index} has the {purpose} of another line already"
            strays.append(
                NotAltered(
                    entry.line.cot_step_index, "failed", f"{entry.where}: {reason}", entry.line.text, entry.where
                )
            )
        else:
            texts[index] = StepText(entry.line.text, entry.where)
    return ProblemTexts(record, texts, tuple(strays))


def _step_of(record: CotRecord, entry: Entry) -> int | str:
    """Index of the step that a line belongs to, or why it belongs to none."""
    line, steps = entry.line, record.steps
    num = len(steps)
    if line.original is None:
        if line.cot_step_index < num:
            return line.cot_step_index
        return f"cot_step_index {line.cot_step_index}, but the CoT has {num} steps (0 to {num - 1})"
    same = [step.index for step in steps if normal(step.text) == normal(line.original)]
    if line.cot_step_index in same:
        return line.cot_step_index
    if len(same) == 1:
        return same[0]
    return "its original is no step of this CoT" if not same else "its original is several steps of this CoT"


class _Names:
    """Which problem of a study a line is about."""

    def __init__(self, study: Study) -> None:
        self._model, self._data_set = study.facts.name, study.data.loaded.name
        problems = study.data.loaded.problems
        self._ids = {problem.problem_id for problem in problems}
        self._by_question = {problem.question: problem.problem_id for problem in problems}

    def problem_id(self, line: StepLine) -> str | None:
        if line.model not in (None, self._model) or line.data_set not in (None, self._data_set):
            return None
        if line.problem_id in self._ids:
            return line.problem_id
        return None if line.question is None else self._by_question.get(line.question)
