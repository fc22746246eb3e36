"""What a study would take, before it runs: drafts and continuations. Exact where drafts are given and rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairwitness.drafts.config import OWN
from fairwitness.drafts.making import NO_CONCLUSION, given_drafts
from fairwitness.drafts.plan import Counterfactual, counterfactuals
from fairwitness.drafts.records import DraftRecord, Ids
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.writing import Writer
from fairwitness.problems.problem import Problem
from fairwitness.text.prompts import choices_block

UNWRITTEN = "?"
"""Stands for a text that a writer is still to write."""
WORDS_AROUND_TOKENS = 24
"""Allowance for the words around the choices in an inserted step."""


@dataclass(frozen=True)
class ExpectedDraft:
    """A draft that is, or may become, usable.

    Attributes:
        problem: Its problem.
        prefix: Prompt and draft; the prompt alone for a draft that the model is still to write.
        num_tokens: Tokens of the draft, at most.
        num_cot_steps: Steps of the draft; None where it is still to be written.
        is_read: Whether the rules read its conclusion and no judge is asked for it first.
        num_intra: Continuations within it, at most.
        num_answers: Answers after its changed ends in each of the two ways, at most.
        num_inserted: Tokens of the longest text that is inserted; about as many where the draft is still to be written.
    """

    problem: Problem
    prefix: Ids
    num_tokens: int
    num_cot_steps: int | None
    is_read: bool
    num_intra: int
    num_answers: int
    num_inserted: int


@dataclass(frozen=True)
class Expected:
    """What a study takes, at most.

    Attributes:
        drafts: Its drafts.
        num_problems: Problems measured.
        is_exact: Whether the numbers of drafts and continuations are the true ones.
    """

    drafts: tuple[ExpectedDraft, ...]
    num_problems: int
    is_exact: bool

    @property
    def num_intra(self) -> int:
        """Continuations within drafts."""
        return sum(draft.num_intra for draft in self.drafts)

    @property
    def num_answers(self) -> int:
        """Answers after changed ends, both ways together."""
        return 2 * sum(draft.num_answers for draft in self.drafts)


def expect(study: DraftStudy) -> Expected:
    """What a study takes; loads no model and asks nobody."""
    problems = study.data.selection.measured
    if study.source == OWN:
        return Expected(tuple(_own(study, problem) for problem in problems), len(problems), is_exact=False)
    config = study.config
    judged = "judge" in config.conclusion_order
    records = given_drafts(study)
    usable = [r for r in records if r.status == "ok" or (judged and (r.reason or "").startswith(NO_CONCLUSION))]
    writes = "plausible" in config.conclusions or (config.corruptor == "writer" and config.corrupts)
    is_exact = not writes and (not judged or (config.conclusion_order[0] == "rules" and _all_read(usable)))
    return Expected(tuple(_given(study, usable)), len(problems), is_exact)


def _own(study: DraftStudy, problem: Problem) -> ExpectedDraft:
    config = study.config
    num_intra = len(config.interventions) * len(config.insertion_types) * len(config.positions)
    prompt = tuple(study.style.draft_prompt(problem))
    # Most of an inserted step is the list of choices.
    num_inserted = WORDS_AROUND_TOKENS + len(study.style.insertion(choices_block(problem.choices)))
    num_answers = len(config.conclusions)
    return ExpectedDraft(problem, prompt, config.limits.draft, None, False, num_intra, num_answers, num_inserted)


def _given(study: DraftStudy, records: Sequence[DraftRecord]) -> list[ExpectedDraft]:
    by_rules = study.config.model_copy(update={"corruptor": "rules", "conclusions": ("direct",)})
    read = [record for record in records if record.conclusion]
    corrupted = {name: texts.corrupted for name, texts in Writer(by_rules, None).write(study, read).items()}
    found = []
    for record in records:
        is_read = bool(record.conclusion) and study.config.conclusion_order[0] == "rules"
        text = corrupted.get(record.problem.problem_id)
        if not is_read or study.config.corruptor == "writer":
            text = UNWRITTEN
        concluded = record if record.conclusion else replace(record, conclusion="A")
        key = study.draft_key(record.problem)
        planned = [c for c in counterfactuals(study.config, key, concluded, text, UNWRITTEN) if c.reason is None]
        found.append(_expected(study, record, planned, is_read=is_read))
    return found


def _expected(
    study: DraftStudy, record: DraftRecord, planned: Sequence[Counterfactual], *, is_read: bool
) -> ExpectedDraft:
    num_intra = sum(one.dimension == "intra" for one in planned)
    return ExpectedDraft(
        record.problem,
        (*record.prompt_ids, *record.draft_ids),
        len(record.draft_ids),
        len(record.steps),
        is_read,
        num_intra,
        (len(planned) - num_intra) // 2,
        max((len(study.style.insertion(one.text)) for one in planned), default=0),
    )


def _all_read(records: Sequence[DraftRecord]) -> bool:
    return all(record.conclusion for record in records)
