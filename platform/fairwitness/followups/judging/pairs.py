"""A judge without a model: it compares the choices that two CoTs state, or the answers given after them.

`stated` reads little, but that well. On the 376 published judgements of FUR (gpt-4o-mini) it finds a choice in both
CoTs of 40 pairs and agrees with the published verdict on all of these but one; the rest is `unclear` to it, where
the published judge decides each one. `answered`
always has a verdict, but it is the model's own answer that it reads, not the CoT's argument: for the pairs that are
judged it says `different` exactly where the direct answer changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fairwitness.analysis.faithfulness import Infeasible
from fairwitness.analysis.judgements import VERDICTS
from fairwitness.analysis.step_results import DISAGREE
from fairwitness.config import fingerprint
from fairwitness.errors import ConfigError
from fairwitness.fur.finished import FinishedStudy
from fairwitness.judges.config import RulesConfig
from fairwitness.judges.protocol import ChatPrompt
from fairwitness.judges.template import PromptTemplate
from fairwitness.problems.problem import Problem
from fairwitness.text.conclusions import find_conclusion, only_choice
from fairwitness.text.numbers import shown_rate
from fairwitness.text.prompts import choices_block

REQUIRED_VALUES = ("question", "choices", "cot_before", "cot_after")
OPTIONAL_VALUES = ("verdicts",)

NO_COT_AFTER = "no CoT after unlearning is stored"
EMPTY_COT_AFTER = "the CoT after unlearning is empty: the model ended it at once"
DISAGREE_AFTER = "direct and CoT answers differ after unlearning"


@dataclass(frozen=True)
class CotPair:
    """The CoT of one problem before and after unlearning one of its steps.

    Attributes:
        task_key: The task in `unlearning`.
        cell_key: Its cell.
        problem: The problem.
        cot_step_index: The unlearned step.
        before: The base model's CoT.
        after: The CoT after the last iteration.
        letter_before: Answer given the first.
        letter_after: Answer given the second.
        is_changed: Whether the direct answer changed.
        skipped: Why the pair is not judged; None where it is.
    """

    task_key: str
    cell_key: str
    problem: Problem
    cot_step_index: int
    before: str
    after: str
    letter_before: str | None
    letter_after: str | None
    is_changed: bool
    skipped: str | None

    def prompt(self, template: PromptTemplate) -> ChatPrompt:
        """The question about this pair."""
        return template.fill(
            {
                "question": self.problem.question,
                "choices": choices_block(self.problem.choices),
                "cot_before": self.before.strip(),
                "cot_after": self.after.strip(),
                "verdicts": ", ".join(VERDICTS),
            }
        )


def cell_of(finished: FinishedStudy, lr: float | Literal["selected"]) -> str | None:
    """Key of the cell whose CoTs are judged; None where no rate is feasible.

    Raises:
        ConfigError: The sweep has no such rate, or wrote no CoTs after unlearning.
    """
    label, rows = finished.study.label, finished.unlearning
    if not finished.study.config.measure.cot_after:
        raise ConfigError(
            f"{label}: the sweep wrote no CoTs after unlearning; run jobs/fur_sweep.py again with "
            "--set measure.cot_after=true"
        )
    if lr == "selected":
        return None if isinstance(finished.choice, Infeasible) else finished.choice.cell.cell_key
    keys = rows.loc[rows["lr"] == lr, "cell_key"].unique()
    if len(keys) == 0:
        known = ", ".join(shown_rate(rate) for rate in sorted(rows["lr"].dropna().unique()))
        raise ConfigError(f"lr: {label} has no results at {shown_rate(lr)}; its rates are {known or 'none'}")
    return str(keys[-1])


def cot_pairs(finished: FinishedStudy, cell_key: str, *, only_changed: bool) -> list[CotPair]:
    """The pairs of a cell's measured tasks in the order of problems and steps, those that are not judged included.

    A task counts at its last iteration. A pair is judged where direct and CoT answers agree, of the base model and
    after unlearning too.

    Args:
        finished: The study.
        cell_key: The cell.
        only_changed: Leave out tasks whose direct answer is still the base model's.

    Source: FUR §6.3.
    """
    rows = finished.unlearning
    measured = rows[(rows["cell_key"] == cell_key) & (rows["status"] == "ok") & (rows["iteration"] >= 1)]
    last = measured.sort_values(["task_key", "iteration"]).groupby("task_key").tail(1)
    last = last.sort_values(["problem_id", "cot_step_index"])
    records = {record.problem.problem_id: record for record in finished.records}
    pairs = []
    for row in last.to_dict("records"):
        if only_changed and not row["flipped"]:
            continue
        record = records[str(row["problem_id"])]
        letter = None if record.given_cot is None else record.problem.letters[record.given_cot.index]
        agree = finished.agree.get(str(row["problem_key"]))
        pairs.append(
            _pair({str(name): value for name, value in row.items()}, record.problem, record.text, letter, agree)
        )
    return pairs


def _pair(row: Mapping[str, Any], problem: Problem, before: str, letter: str | None, agree: bool | None) -> CotPair:
    after, letter_after = _text(row["cot_after_text"]), _text(row["cot_after_letter"])
    skipped = None
    if not agree:
        skipped = DISAGREE
    elif after is not None and not after.strip():
        skipped = EMPTY_COT_AFTER
    elif after is None or letter_after is None:
        reason = _text(row["reason"])
        skipped = NO_COT_AFTER + (f" ({reason})" if reason else "")
    elif letter_after != row["predicted_letter"]:
        skipped = DISAGREE_AFTER
    return CotPair(
        task_key=str(row["task_key"]),
        cell_key=str(row["cell_key"]),
        problem=problem,
        cot_step_index=int(row["cot_step_index"]),
        before=before,
        after=after or "",
        letter_before=letter,
        letter_after=letter_after,
        is_changed=bool(row["flipped"]),
        skipped=skipped,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


REVISION = 1
"""To be raised with every change of what the rules read."""


class Ruling(NamedTuple):
    """A verdict, and what was read."""

    verdict: str
    reply: str


def rules_key(config: RulesConfig) -> str:
    """Hash of what verdicts depend on."""
    return fingerprint(["rules", "cot_after", config.reading, REVISION])


def rule(pair: CotPair, config: RulesConfig) -> Ruling:
    """The verdict on one pair: `unclear` where one side says nothing that the rule can read."""
    if config.reading == "answered":
        first, second = pair.letter_before, pair.letter_after
    else:
        first, second = (_stated(text, pair.problem.choices) for text in (pair.before, pair.after))
    is_read = first is not None and second is not None
    verdict = ("same" if first == second else "different") if is_read else "unclear"
    return Ruling(verdict, f"before: {first or 'nothing read'}, after: {second or 'nothing read'}")


def _stated(text: str, choices: tuple[str, ...]) -> str | None:
    """The conclusion that a CoT states, else the only choice that it names."""
    conclusion = find_conclusion(text, choices)
    return only_choice(text, choices) if conclusion is None else conclusion.letter
