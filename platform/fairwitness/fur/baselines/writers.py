"""Where mistaken and paraphrased steps come from: what every source promises, and the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fairwitness.errors import ConfigError
from fairwitness.fur.baselines.altered import NotAltered
from fairwitness.fur.baselines.step_texts import StepText
from fairwitness.fur.cots import CotRecord
from fairwitness.fur.study import Study
from fairwitness.problems.draws import item_rng
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

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

    def write(self, study: Study, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
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

    def write(self, study: Study, records: Sequence[CotRecord], purpose: Purpose) -> Iterator[ProblemTexts]:
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
