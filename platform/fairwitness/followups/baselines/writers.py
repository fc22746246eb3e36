"""Changed steps that a model writes: all steps of a study are asked for at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fairwitness.chains.cots import CotRecord
from fairwitness.chains.steps import CotStep
from fairwitness.errors import ConfigError, ItemError
from fairwitness.followups.baselines.changes import NotAltered, StepText, normal
from fairwitness.followups.baselines.config import JudgeTexts
from fairwitness.fur.study import FurStudy
from fairwitness.judges.config import JudgeConfig
from fairwitness.judges.factory import check_usable
from fairwitness.judges.protocol import ChatModel, ChatPrompt, ChatReply
from fairwitness.judges.template import PromptTemplate, load_template
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of
from fairwitness.records.progress import Progress
from fairwitness.text.prompts import choices_block

Purpose = Literal["mistake", "paraphrase"]


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
    """Gives steps in other words."""

    @property
    def key(self) -> str:
        """Hash of everything that the texts depend on, beside problem and step."""

    def write(self, study: FurStudy, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
        """Texts for the steps of every record that can be unlearned; each record exactly once.

        Raises:
            FairwitnessError: The source cannot be used at all.
        """


@dataclass(frozen=True)
class Rule:
    """A rule that knows what the steps of a made-up world say.

    Attributes:
        name: Its name.
        revision: Hash of its code.
        rewrite: Takes problem, step, purpose and a generator of random draws; gives the new step, or None where the
            step says nothing that the rule knows.
    """

    name: str
    revision: str
    rewrite: Callable[[Problem, str, Purpose, np.random.Generator], str | None]


class RuleWriter:
    """Steps rewritten by a rule; the same for every order of the problems."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    @property
    def key(self) -> str:
        """Hash of the rule."""
        return key_of(rule=self.rule.name, revision=self.rule.revision)

    def write(self, study: FurStudy, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`."""
        source = f"rule {self.rule.name}"
        for record in records:
            texts = {}
            for step in record.eligible:
                rng = item_rng(study.config.seed, record.problem.problem_id, step.index, purpose)
                text = self.rule.rewrite(record.problem, step.text, purpose, rng)
                reason = None if text is not None else f"{source} knows no {purpose} of this step"
                texts[step.index] = StepText(text, source, "skipped", reason)
            yield ProblemTexts(record, texts)


def rule_writer(name: str, rules: Mapping[str, Rule]) -> RuleWriter:
    """The writer of a rule by its name.

    Raises:
        ConfigError: There is no such rule.
    """
    if name not in rules:
        raise ConfigError(f"texts: there is no rule {name!r}; the rules are {', '.join(rules) or 'none'}")
    return RuleWriter(rules[name])


TEMPLATES = {"mistake": "add_mistake", "paraphrase": "paraphrase"}
REQUIRED_VALUES, OPTIONAL_VALUES = ("step",), ("question", "choices", "cot")

_THOUGHTS = re.compile(r"\A.*</think>", re.DOTALL)
_QUOTES = {'"': '"', "“": "”", "'": "'", "`": "`"}

Ask = Callable[[JudgeConfig], ChatModel]
"""Opens a model; the same settings give the same model."""


@dataclass
class Spent:
    """What the replies took.

    Attributes:
        num_replies: Replies, failed ones not counted.
        num_from_cache: Those of them that nothing was asked for.
        num_failed: Requests that failed, and replies that are no sentence.
        cost: In the currency of the configured prices.
    """

    num_replies: int = 0
    num_from_cache: int = 0
    num_failed: int = 0
    cost: float = 0.0

    def summary(self, name: str) -> str:
        """One line for the log."""
        return (
            f"{self.num_replies} texts by {name} ({self.num_from_cache} from the cache), {self.num_failed} failed, "
            f"cost {self.cost:g}"
        )


@dataclass
class JudgeWriter:
    """Steps rewritten by a model.

    Attributes:
        config: Which model, and what it is asked.
        purpose: What for.
        ask: Opens the model when the first step is wanted.
        template: The question.
        key: Hash of model, template and length.
        spent: What its replies took so far.
    """

    config: JudgeTexts
    purpose: Purpose
    ask: Ask
    template: PromptTemplate = field(init=False)
    key: str = field(init=False)
    spent: Spent = field(init=False, default_factory=Spent)

    def __post_init__(self) -> None:
        """Checks model and template; loads and sends nothing.

        Raises:
            ConfigError, ModelError: The model has no key, writes no text or cannot chat; the template is broken.
        """
        self.template = load_template(
            TEMPLATES[self.purpose], self.config.template, required=REQUIRED_VALUES, optional=OPTIONAL_VALUES
        )
        model = check_usable(self.config.judge)
        self.key = key_of(model=model, template=self.template.key, max_tokens=self.config.max_tokens)

    def write(self, study: FurStudy, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
        """See `StepWriter.write`.

        Raises:
            ConfigError: The endpoint refuses the key, does not know the model, or nothing listens at the address.
            ModelError: A local model cannot be loaded.
        """
        wanted = [(record, step) for record in records for step in record.eligible]
        texts: dict[str, dict[int, StepText]] = {record.problem.problem_id: {} for record in records}
        prompts = [self._prompt(record, step) for record, step in wanted]
        label = f"{study.label}: {purpose}s by {self.config.judge.shown_name}"
        if wanted:
            with Progress(len(wanted), label) as progress:
                model = self.ask(self.config.judge)
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
        name = self.config.judge.shown_name
        self.spent.cost += reply.cost
        try:
            text = parse_sentence(reply)
        except ItemError as error:
            self.spent.num_failed += 1
            return StepText(None, name, "failed", f"{name}: {error}")
        self.spent.num_replies += 1
        self.spent.num_from_cache += reply.from_cache
        return StepText(text, name)


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
    if len(lines) != 1:
        raise ItemError(
            f"the reply has {len(lines)} lines; one sentence was asked for" if lines else "the reply is empty"
        )
    (text,) = lines
    inner = text[1:-1]
    if len(text) > 2 and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner and text[-1] not in inner:
        text = inner.strip()
    if not text:
        raise ItemError("the reply is empty")
    return text
