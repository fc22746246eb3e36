"""Puts the lines of several published files together: one problem, one CoT, one cell, whatever file names it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase

from fairwitness.config import fingerprint
from fairwitness.fur.published.lines import JudgementLine, MistakeLine, ResultLine, StudyLine
from fairwitness.fur.published.origin import Origin
from fairwitness.fur.published.reading import PublishedFile, Taken
from fairwitness.fur.published.rows import Cot, Problem, Row, task_key, unlearning_rows
from fairwitness.fur.step_study.bins import bin_of
from fairwitness.fur.step_study.scale import parse_rating
from fairwitness.fur.step_study.steps import item_name
from fairwitness.judges.published import NO_VERDICT
from fairwitness.problems.records import Refused
from fairwitness.records.keys import key_of

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
