"""Where changed steps come from: a rule of a made-up world, a model that writes them, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field, field_validator

from fairwitness.config import Config, fingerprint, validate
from fairwitness.errors import ConfigError, DataError, ItemError
from fairwitness.followups.baselines.changes import StepText, normal
from fairwitness.followups.baselines.rows import NotAltered
from fairwitness.judges.factory import check_usable
from fairwitness.judges.template import load_template
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.problems.readers import read_lines
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress
from fairwitness.text.prompts import choices_block

if TYPE_CHECKING:
    from fairwitness.chains.cots import CotRecord
    from fairwitness.chains.steps import CotStep
    from fairwitness.chains.study import ChainStudy
    from fairwitness.followups.config import FileTexts, JudgeTexts
    from fairwitness.followups.following import Ask
    from fairwitness.judges.protocol import ChatPrompt, ChatReply

Purpose = Literal["mistake", "paraphrase"]

TEXTS_CODE = "fairwitness.followups.baselines.texts"


class ProblemTexts(NamedTuple):
    """What a source has for one problem.

    Attributes:
        record: The problem and its CoT.
        texts: New texts by the index of their step.
        strays: What the source has for this problem that belongs to none of its steps.
    """

    record: CotRecord
    texts: Mapping[int, StepText]
    strays: tuple[NotAltered, ...] = ()


class StepWriter(Protocol):
    """Gives steps in other words, for one purpose.

    Attributes:
        key: Hash of everything that the texts depend on, beside problem and step.
    """

    key: str

    def write(self, study: ChainStudy, records: Sequence[CotRecord], ask: Ask) -> Iterator[ProblemTexts]:
        """Texts for the steps of every record that can be unlearned; each record exactly once.

        Args:
            study: The study.
            records: Its problems.
            ask: Opens a model that writes.

        Raises:
            FairwitnessError: The source cannot be used at all.
        """


def texts_key(**parts: Any) -> str:
    """Key of a source of texts: what it says, and the code that makes texts of it. Models have keys of their own."""
    return key_of(**parts, code=code_revision(TEXTS_CODE, without=("fairwitness.judges",)))


Rewrite = Callable[[Problem, str, Purpose, np.random.Generator], str | None]
"""Takes problem, step, purpose and a generator of random draws; gives the new step, or None where the step says nothing
that the rule knows."""


class RuleWriter:
    """Steps rewritten by a rule that knows what the steps of a made-up world say; the same for every order."""

    def __init__(self, name: str, rules: Mapping[str, tuple[str, Rewrite]], purpose: Purpose) -> None:
        """Finds the rule by its name among rules with hashes of their code.

        Raises:
            ConfigError: There is no such rule.
        """
        if name not in rules:
            raise ConfigError(f"texts: there is no rule {name!r}; the rules are {', '.join(rules) or 'none'}")
        revision, self.rewrite = rules[name]
        self.name, self.purpose = name, purpose
        self.key = texts_key(rule=name, revision=revision)

    def write(self, study: ChainStudy, records: Sequence[CotRecord], ask: Ask) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`."""
        del ask
        source = f"rule {self.name}"
        for record in records:
            texts = {}
            for step in record.eligible:
                rng = item_rng(study.config.seed, record.problem.problem_id, step.index, self.purpose)
                text = self.rewrite(record.problem, step.text, self.purpose, rng)
                reason = None if text is not None else f"{source} knows no {self.purpose} of this step"
                texts[step.index] = StepText(text, source, "skipped", reason)
            yield ProblemTexts(record, texts)


TEMPLATES = {"mistake": "add_mistake", "paraphrase": "paraphrase"}
REQUIRED_VALUES, OPTIONAL_VALUES = ("step",), ("question", "choices", "cot")

_THOUGHTS = re.compile(r"\A.*</think>", re.DOTALL)
_QUOTES = {'"': '"', "“": "”", "'": "'", "`": "`"}


class JudgeWriter:
    """Steps rewritten by a model; all steps of a study are asked for at once.

    Attributes:
        spent: What its replies took so far: num_replies, failed ones not counted; num_from_cache, those of them that
            nothing was asked for; num_failed; and cost, in the currency of the configured prices.
    """

    def __init__(self, config: JudgeTexts, purpose: Purpose) -> None:
        """Checks model and template; loads and sends nothing.

        Raises:
            ConfigError, ModelError: The model has no key, writes no text or cannot chat; the template is broken.
        """
        self.config, self.purpose, self.name = config, purpose, config.judge.shown_name
        self.spent: dict[str, float] = dict.fromkeys(("num_replies", "num_from_cache", "num_failed", "cost"), 0)
        self.template = load_template(
            TEMPLATES[purpose], config.template, required=REQUIRED_VALUES, optional=OPTIONAL_VALUES
        )
        model = check_usable(config.judge)
        self.key = texts_key(model=model, template=self.template.key, max_tokens=config.max_tokens)

    def write(self, study: ChainStudy, records: Sequence[CotRecord], ask: Ask) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`.

        Raises:
            ConfigError: The endpoint refuses the key, does not know the model, or nothing listens at the address.
            ModelError: A local model cannot be loaded.
        """
        wanted = [(record, step) for record in records for step in record.eligible]
        texts: dict[str, dict[int, StepText]] = {record.problem.problem_id: {} for record in records}
        prompts = [self._prompt(record, step) for record, step in wanted]
        if wanted:
            with Progress(len(wanted), f"{study.label}: {self.purpose}s by {self.name}") as progress:
                model = ask(self.config.judge)
                for position, reply in model.replies(prompts, max_tokens=self.config.max_tokens):
                    record, step = wanted[position]
                    text = texts[record.problem.problem_id][step.index] = self._step_text(reply)
                    progress.advance(int(text.text is not None), failed=int(text.text is None))
        for record in records:
            yield ProblemTexts(record, texts[record.problem.problem_id])

    def _prompt(self, record: CotRecord, step: CotStep) -> ChatPrompt:
        problem = record.problem
        choices = choices_block(problem.choices)
        return self.template.fill(
            {"question": problem.question, "choices": choices, "step": normal(step.text), "cot": record.text.strip()}
        )

    def _step_text(self, reply: ChatReply) -> StepText:
        self.spent["cost"] += reply.cost
        try:
            text = parse_sentence(reply)
        except ItemError as error:
            self.spent["num_failed"] += 1
            return StepText(None, self.name, "failed", f"{self.name}: {error}")
        self.spent["num_replies"] += 1
        self.spent["num_from_cache"] += reply.from_cache
        return StepText(text, self.name)


def parse_sentence(reply: ChatReply) -> str:
    """The one line of a reply, without thoughts before a `</think>` and without quotation marks around the whole.

    Raises:
        ItemError: There is no reply, it was cut, it is empty, or it has several lines.
    """
    if reply.text is None:
        raise ItemError(reply.error or "no reply")
    if reply.is_cut:
        raise ItemError("the reply was cut at texts.max_tokens; raise it")
    lines = [line.strip() for line in _THOUGHTS.sub("", reply.text).splitlines() if line.strip()]
    if len(lines) > 1:
        raise ItemError(f"the reply has {len(lines)} lines; one sentence was asked for")
    text = lines[0] if lines else ""
    inner = text[1:-1]
    if len(text) > 2 and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner and text[-1] not in inner:
        text = inner.strip()
    if not text:
        raise ItemError("the reply is empty")
    return text


PUBLISHED = {
    "id": "problem_id",
    "step_idx": "cot_step_index",
    "mistake_cot_step": "text",
    "cot_step": "original",
    "question": "question",
}
"""Fields of the published files that are read, and what they are called here."""


class StepLine(Config):
    """One line of a file: a step in other words."""

    problem_id: str = Field(min_length=1)
    """Name of the problem."""
    cot_step_index: int = Field(ge=0)
    """Position of the step in its CoT, from 0."""
    text: str
    """The step as changed."""
    original: str | None = None
    """The step that the text stands for; where it is given, it decides which step that is."""
    question: str | None = None
    """The problem's question; names the problem where the id does not."""
    model: str | None = None
    """The model whose CoT it is; None for every model of the run."""
    data_set: str | None = None
    """The data set of the problem; None for every one of the run."""

    @field_validator("text", "original")
    @classmethod
    def _says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("is empty; write the step or remove the line")
        return value


class Entry(NamedTuple):
    """A line and where it is, as `file:line`."""

    where: str
    line: StepLine


def read_step_file(path: str | Path) -> list[Entry]:
    """Reads changed steps, in our form or in the published one.

    Raises:
        DataError: It cannot be read, holds nothing, or a line is not usable or repeats another one; names file, line
            and field.
    """
    path = Path(path).expanduser()
    entries: list[Entry] = []
    seen: dict[tuple[Any, ...], str] = {}
    for record in read_lines(path):
        where = f"{path.name}:{record.line}"
        line = _parsed(f"{path}:{record.line}", record.values)
        place = (line.model, line.data_set, line.problem_id, line.cot_step_index)
        if place in seen:
            raise DataError(
                f"{path.parent / where}: problem_id {line.problem_id!r}, cot_step_index {line.cot_step_index} is "
                f"in {seen[place]} already; keep one of them"
            )
        seen[place] = where
        entries.append(Entry(where, line))
    if not entries:
        raise DataError(f"{path}: holds no step; write one JSON object per line")
    return entries


def content_hash(entries: Sequence[Entry]) -> str:
    """Hash of what lines say, wherever they stand."""
    return fingerprint([entry.line.model_dump(mode="json") for entry in entries])


def _parsed(where: str, values: Mapping[str, Any]) -> StepLine:
    if "mistake_cot_step" in values:
        values = {ours: values[theirs] for theirs, ours in PUBLISHED.items() if theirs in values}
    try:
        return validate(StepLine, values, where)
    except ConfigError as error:
        raise DataError(str(error)) from error


class FileWriter:
    """Steps from a file.

    Attributes:
        ignored: Lines about problems that no data set of the run has, as `file:line`.
    """

    def __init__(self, config: FileTexts, studies: Sequence[ChainStudy], purpose: Purpose) -> None:
        """Reads the file.

        Raises:
            DataError: See `read_step_file`; or a line is about a problem that no data set of the run has.
        """
        self.purpose, self.entries = purpose, read_step_file(config.path)
        self.key = texts_key(file=content_hash(self.entries))
        self._named = {study.scope_key: _named(study) for study in studies}
        unknown = [entry for entry in self.entries if not any(find(entry.line) for find in self._named.values())]
        self.ignored = [entry.where for entry in unknown]
        if unknown and config.unknown_problems == "error":
            first = unknown[0]
            raise DataError(
                f"{config.path}: line {first.where.rpartition(':')[2]}: problem_id {first.line.problem_id!r} is no "
                f"problem of this run ({len(unknown)} such lines); mend the id, or set texts.unknown_problems: ignore"
            )

    def write(self, study: ChainStudy, records: Sequence[CotRecord], ask: Ask) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`. A line that belongs to no step of its problem's CoT is a stray.

        A line with `original` belongs to the step that says the same, white space aside: the one at its index, else
        the only one. Any other line belongs to the step at its index.
        """
        del ask
        by_problem: dict[str, list[Entry]] = {}
        for entry in self.entries:
            problem_id = self._named[study.scope_key](entry.line)
            if problem_id is not None:
                by_problem.setdefault(problem_id, []).append(entry)
        for record in records:
            yield self._laid(record, by_problem.get(record.problem.problem_id, []))

    def _laid(self, record: CotRecord, entries: Sequence[Entry]) -> ProblemTexts:
        texts: dict[int, StepText] = {}
        strays = []
        for where, line in entries:
            index = _step_of(record, line)
            if isinstance(index, str) or index in texts:
                reason = (
                    index if isinstance(index, str) else f"step {index} has the {self.purpose} of another line already"
                )
                strays.append(NotAltered(line.cot_step_index, "failed", f"{where}: {reason}", line.text, where))
            else:
                texts[index] = StepText(line.text, where)
        return ProblemTexts(record, texts, tuple(strays))


def _step_of(record: CotRecord, line: StepLine) -> int | str:
    """Index of the step that a line belongs to, or why it belongs to none."""
    num = len(record.steps)
    if line.original is None:
        if line.cot_step_index < num:
            return line.cot_step_index
        return f"cot_step_index {line.cot_step_index}, but the CoT has {num} steps (0 to {num - 1})"
    same = [step.index for step in record.steps if normal(step.text) == normal(line.original)]
    if line.cot_step_index in same:
        return line.cot_step_index
    if len(same) == 1:
        return same[0]
    return "its original is no step of this CoT" if not same else "its original is several steps of this CoT"


def _named(study: ChainStudy) -> Callable[[StepLine], str | None]:
    """Finds the problem of a study that a line is about."""
    problems = study.data.loaded.problems
    ids = {problem.problem_id for problem in problems}
    by_question = {problem.question: problem.problem_id for problem in problems}

    def find(line: StepLine) -> str | None:
        if line.model not in (None, study.facts.name) or line.data_set not in (None, study.data.loaded.name):
            return None
        return line.problem_id if line.problem_id in ids else by_question.get(line.question or "")

    return find
