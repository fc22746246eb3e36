"""CoTs before and after unlearning, in pairs to be judged, and the rows of their judgements. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairwitness.analysis.judgements import KIND, VERDICTS
from fairwitness.analysis.step_results import DISAGREE
from fairwitness.errors import ItemError
from fairwitness.judges.parse import parse_verdict
from fairwitness.problems.problem import Problem
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.text.prompts import choices_block

if TYPE_CHECKING:
    from fairwitness.fur.finished import FinishedStudy
    from fairwitness.fur.study import FurStudy
    from fairwitness.judges.protocol import ChatPrompt, ChatReply
    from fairwitness.judges.template import PromptTemplate

Row = dict[str, Any]

PAIRS_CODE = "fairwitness.followups.judging.pairs"


def judging_code(*modules: str) -> str:
    """Revision of the code that pairs CoTs, and of modules that judge them.

    A task's key holds the code that unlearned. Of `analysis` only names are used: of verdicts and reasons.
    """
    return code_revision(PAIRS_CODE, *modules, without=("fairwitness.analysis",))


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


@dataclass(frozen=True)
class JudgeName:
    """How a judge is called, and the hash of everything that its verdicts depend on."""

    name: str
    key: str

    def row_key(self, pair: CotPair) -> str:
        """Key of the judgement of a pair."""
        return key_of(item=pair.task_key, kind=KIND, judge=self.key)

    def row(self, study: FurStudy, pair: CotPair, **found: Any) -> Row:
        """Row of the judgement of a pair; `found` is what was found, by column."""
        return {
            "key": self.row_key(pair),
            "item_key": pair.task_key,
            "kind": KIND,
            **study.columns,
            "cell_key": pair.cell_key,
            "problem_id": pair.problem.problem_id,
            "cot_step_index": pair.cot_step_index,
            "judge": self.name,
            "judge_key": self.key,
            **found,
        }


def replied(reply: ChatReply, *, max_tokens: int) -> Row:
    """Columns of a pair that a model was asked about: failed without a reply, or without one clear verdict in it."""
    verdict, reason = None, reply.error
    if reply.text is not None:
        try:
            verdict = parse_verdict(reply.text, VERDICTS)
        except ItemError as error:
            cut = f"; the reply was cut at max_tokens {max_tokens}, raise it" if reply.is_cut else ""
            reason = f"unparsable: {error}{cut}"
    return {
        "verdict": verdict,
        "reply": reply.text,
        **{name: getattr(reply, name) for name in ("num_prompt_tokens", "num_completion_tokens", "cost", "from_cache")},
        "status": "failed" if verdict is None else "ok",
        "reason": reason,
    }
