"""How many requests a judge and a writer would get at most, and what the replies would cost at most.

What is known of a prompt is counted in bytes, of which a token has at least one. What the model is still to write is
counted at its limit, a token of the model as a token of the judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from fairwitness.drafts.making import IMMEDIATE_TOKENS, NO_CONCLUSION, given_drafts
from fairwitness.drafts.plan import Counterfactual, counterfactuals
from fairwitness.drafts.reading import MAX_REPLY_TOKENS
from fairwitness.drafts.steps import MAX_REPLY_TOKENS as MAX_LABEL_TOKENS
from fairwitness.drafts.steps import STEPS_PER_PROMPT, DraftRecord, Ids
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.writing import MAX_CHOICE_TOKENS, MAX_CONCLUSION_TOKENS, SHOWN_CHARS, Writer
from fairwitness.judges.budget import MESSAGE_OVERHEAD_TOKENS, Prices
from fairwitness.judges.config import EndpointConfig, JudgeConfig
from fairwitness.judges.template import PromptTemplate, load_template
from fairwitness.problems.problem import Problem
from fairwitness.text.prompts import choices_block
from fairwitness_schemas.drafts import OWN

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


INSERTED_BYTES = 200
"""Allowance for the words around the choices in an inserted step."""
NUMBER_TOKENS = 5
"""Tokens of the number and the line break of a step that is shown to a judge."""


@dataclass(frozen=True)
class Bound:
    """Requests, and what they cost together, at most."""

    num: int = 0
    cost: float = 0.0

    def __add__(self, other: Bound) -> Bound:
        """Both together."""
        return Bound(self.num + other.num, self.cost + other.cost)


def judge_bound(study: DraftStudy, expected: Expected) -> Bound:
    """What the judge is asked at most; nothing where rules judge."""
    if not study.config.has_judge:
        return Bound()
    prices = prices_of(study.config.judge)
    return sum((_judged(study, draft, prices) for draft in expected.drafts), Bound())


def writer_bound(study: DraftStudy, expected: Expected) -> Bound:
    """What the writer is asked at most: a wrong choice and a conclusion for every draft, where it writes them."""
    config, prices, total = study.config, prices_of(study.config.writer), Bound()
    for draft in expected.drafts:
        if config.corrupts and config.corruptor == "writer":
            total += _asked(prices, 1, _size(draft, "draft_corruption", ("choice",)), MAX_CHOICE_TOKENS)
        if "plausible" in config.conclusions:
            shown = _size(draft, "draft_plausible", ("draft", "letter", "choice")) + 4 * SHOWN_CHARS
            total += _asked(prices, 1, shown, MAX_CONCLUSION_TOKENS)
    return total


def prices_of(config: JudgeConfig) -> Prices:
    """The prices of a judge or writer; zero for one without."""
    return config.prices if isinstance(config, EndpointConfig) else Prices(0.0, 0.0)


def _judged(study: DraftStudy, draft: ExpectedDraft, prices: Prices) -> Bound:
    config, limits, total = study.config, study.config.limits, Bound()
    num_steps = draft.num_tokens if draft.num_cot_steps is None else draft.num_cot_steps
    if config.decomposer == "judge":
        num = -(-num_steps // STEPS_PER_PROMPT)
        size = _size(draft, "draft_steps", ("cot_steps",))
        text = draft.num_tokens + NUMBER_TOKENS * num_steps
        total += _asked(prices, num, size, MAX_LABEL_TOKENS, text)
    if "judge" in config.conclusion_order:
        size = _size(draft, "draft_conclusion", ("text", "verdicts"))
        texts = (
            (draft.num_tokens, 0 if draft.is_read else 1),
            (limits.answer, 1 + draft.num_answers),
            (IMMEDIATE_TOKENS, draft.num_answers),
            (limits.continuation, draft.num_intra),
        )
        for length, num in texts:
            total += _asked(prices, num, size, MAX_REPLY_TOKENS, num * length)
    size = _size(draft, "draft_behaviour", ("inserted", "continuation", "verdicts")) + INSERTED_BYTES
    size += len(choices_block(draft.problem.choices).encode())
    num = draft.num_intra
    return total + _asked(prices, num, size, MAX_REPLY_TOKENS, num * limits.continuation)


def _asked(prices: Prices, num: int, size: int, max_tokens: int, num_text_tokens: int = 0) -> Bound:
    num_prompt = num * (size + MESSAGE_OVERHEAD_TOKENS) + num_text_tokens
    return Bound(num, prices.cost(num_prompt, num * max_tokens))


@cache
def _template(name: str, shown: tuple[str, ...]) -> PromptTemplate:
    return load_template(name, None, required=shown)


def _size(draft: ExpectedDraft, template: str, others: tuple[str, ...]) -> int:
    """Bytes of a prompt about a problem, without the texts of the model."""
    shown: Mapping[str, str] = {
        "question": draft.problem.question,
        "choices": choices_block(draft.problem.choices),
        "choice": max(draft.problem.choices, key=len),
        "letter": "A",
    }
    names = ("question", *(() if template == "draft_steps" else ("choices",)), *others)
    prompt = _template(template, names).fill({name: shown.get(name, "") for name in names})
    return len((prompt.system + prompt.user).encode())
