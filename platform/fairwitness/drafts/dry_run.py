"""Says what a measurement of drafts would do, ask and need, after a few tokens of calibration.

Requests to a judge and a writer are bounded. What is known of a prompt is counted in bytes, of which a token has at
least one. What the model is still to write is counted at its limit, a token of the model as a token of the judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import NamedTuple

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.continuing import IMMEDIATE_TOKENS
from fairwitness.drafts.engine import ContinueItem, engine_spec
from fairwitness.drafts.making import NO_CONCLUSION, given_drafts, row_seed
from fairwitness.drafts.plan import cells_of, counterfactuals
from fairwitness.drafts.reading import MAX_LABEL_TOKENS, MAX_REPLY_TOKENS, QUESTIONS, STEPS_PER_PROMPT, question, shown
from fairwitness.drafts.steps import DraftRecord, Ids
from fairwitness.drafts.study import DraftStudy
from fairwitness.drafts.writing import MAX_CHOICE_TOKENS, MAX_CONCLUSION_TOKENS, SHOWN_CHARS, Writer
from fairwitness.errors import ModelError
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.judges.budget import MESSAGE_OVERHEAD_TOKENS, Prices
from fairwitness.judges.config import EndpointConfig, JudgeConfig, RulesConfig
from fairwitness.lm.continuation import LENGTH, Branch, Settings, Tree
from fairwitness.lm.inspect import read_hf_config
from fairwitness.problems.problem import Problem
from fairwitness.records.progress import duration
from fairwitness.records.run_dir import RunDirectory
from fairwitness.text.prompts import choices_block
from fairwitness_schemas.drafts import OWN

NUM_SAMPLE = 4
"""Drafts, or prompts of drafts, that are measured."""
NUM_NEW_TOKENS = 8
"""Tokens that each row generates in the longer of two measurements."""
MOST_DRAFTS, MOST_ROWS = 2, 8
"""Rows of a measurement; more at once cost less each, so that what is scaled up stays an upper bound."""
MADE_UP_TOKENS = 128
"""Tokens of a draft that stands for one that the model is still to write, unless its limit is lower."""
UNWRITTEN = "?"
"""Stands for a text that a writer is still to write."""
WORDS_AROUND_TOKENS, WORDS_AROUND_BYTES = 24, 200
"""Allowance for the words around the choices in an inserted step."""
NUMBER_TOKENS = 5
"""Tokens of the number and the line break of a step that is shown to a judge."""
GIB = 2**30


def draft_dry_run(config: DraftFaithfulnessConfig, studies: Sequence[DraftStudy]) -> Iterator[str]:
    """Lines that say what would be run, each before the work that it announces. Nothing is stored, no judge is asked.

    Args:
        config: The configuration.
        studies: Its studies.

    Raises:
        FairwitnessError: As for the run itself.
    """
    place = RunDirectory(config.output.dir, config.name).path
    actors = _number(config.pool.most_workers, "actor")
    yield f"{_number(len(studies), 'study', 'studies')} for {actors}; the run would write to {place}"
    seconds, judged, written = 0.0, Bound(), Bound()
    with make_pool(config.pool) as pool:
        for study in studies:
            expected = expect(study)
            judged += judge_bound(study, expected)
            written += writer_bound(study, expected)
            yield f"{study.label}: {_what(study, expected)}"
            if expected.drafts:
                cost = measure_cost(study, expected, pool)
                seconds += cost.seconds
                yield f"{study.label}: {_estimated(cost)}"
    for who, one, bound in (("judge", config.judge, judged), ("writer", config.writer, written)):
        if not isinstance(one, RulesConfig):
            yield f"{who} {one.shown_name}: {_requests(one, bound)}"
    if len(studies) > 1:
        yield f"all studies: at most about {duration(seconds)}"


def _what(study: DraftStudy, expected: Expected) -> str:
    num_drafts, num = len(expected.drafts), expected.num_intra + expected.num_answers
    most = "" if expected.is_exact else "at most "
    parts = [
        _number(expected.num_problems, "problem"),
        f"{most}{_number(num_drafts, 'usable draft')}",
        f"{most}{_number(num, 'continuation')} ({expected.num_intra} within drafts, {expected.num_answers} after them)",
    ]
    if study.refused:
        parts.insert(1, f"{_number(len(study.refused), 'line')} of the file refused")
    return ", ".join(parts) + ("; measuring a few tokens now" if num_drafts else "")


def _estimated(cost: Cost) -> str:
    return (
        f"at most about {duration(cost.seconds)} on machines like this one, where every text reaches its limit; "
        f"{cost.weight_bytes / GIB:.2f} GiB of weights and up to {cost.cache_bytes / GIB:.2f} GiB of keys and values "
        "per actor"
    )


def _requests(config: JudgeConfig, bound: Bound) -> str:
    requests = f"at most {_number(bound.num, 'request')}"
    if not isinstance(config, EndpointConfig) or not any(config.prices):
        return requests
    limit = f"; max_cost ends them at {config.max_cost:g}" if config.max_cost is not None else ""
    return f"{requests}, which cost at most about {bound.cost:.2f}{limit}"


def _number(value: int, one: str, more: str | None = None) -> str:
    return f"{value:,} {one if value == 1 else more or one + 's'}"


@dataclass(frozen=True)
class ExpectedDraft:
    """A draft that is, or may become, usable.

    Attributes:
        problem: Its problem.
        prefix: Prompt and draft; the prompt alone for a draft that the model is still to write.
        num_tokens: Tokens of the draft, at most.
        num_cot_steps: Steps of the draft, at most.
        is_read: Whether the rules read its conclusion and no judge is asked for it first.
        num_intra: Continuations within it, at most.
        num_answers: Answers after its changed ends in each of the two ways, at most.
        num_inserted: Tokens of the longest text that is inserted; about as many where the draft is still to be written.
    """

    problem: Problem
    prefix: Ids
    num_tokens: int
    num_cot_steps: int
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
    config, problems = study.config, study.data.selection.measured
    if study.source == OWN:
        return Expected(tuple(_own(study, problem) for problem in problems), len(problems), is_exact=False)
    judged = "judge" in config.conclusion_order
    records = given_drafts(study)
    usable = [r for r in records if r.status == "ok" or (judged and (r.reason or "").startswith(NO_CONCLUSION))]
    writes = "plausible" in config.conclusions or (config.corruptor == "writer" and config.corrupts)
    is_read = not judged or (config.conclusion_order[0] == "rules" and all(record.conclusion for record in usable))
    return Expected(tuple(_given(study, usable)), len(problems), is_exact=is_read and not writes)


def _own(study: DraftStudy, problem: Problem) -> ExpectedDraft:
    config, limit = study.config, study.config.limits.draft
    num_intra = len(config.interventions) * len(config.insertion_types) * len(config.positions)
    prompt = tuple(study.style.draft_prompt(problem))
    # Most of an inserted step is the list of choices.
    num_inserted = WORDS_AROUND_TOKENS + len(study.style.insertion(choices_block(problem.choices)))
    # A step has at least one token.
    return ExpectedDraft(problem, prompt, limit, limit, False, num_intra, len(config.conclusions), num_inserted)


def _given(study: DraftStudy, records: Sequence[DraftRecord]) -> Iterator[ExpectedDraft]:
    config, cells = study.config, cells_of(study.config)
    by_rules = config.model_copy(update={"corruptor": "rules", "conclusions": ("direct",)})
    texts = Writer(by_rules, None).write([record for record in records if record.conclusion])
    for record in records:
        problem, is_read = record.problem, bool(record.conclusion) and config.conclusion_order[0] == "rules"
        is_known = is_read and config.corruptor == "rules"
        corrupted = texts[problem.problem_id].corrupted if is_known else UNWRITTEN
        concluded = record if record.conclusion else replace(record, conclusion="A")
        planned = counterfactuals(config, cells, study.draft_key(problem), concluded, corrupted, UNWRITTEN)
        made = [one for one in planned if one.reason is None]
        num_intra = sum(one.dimension == "intra" for one in made)
        yield ExpectedDraft(
            problem,
            (*record.prompt_ids, *record.draft_ids),
            len(record.draft_ids),
            len(record.steps),
            is_read,
            num_intra,
            (len(made) - num_intra) // 2,
            max((len(study.style.insertion(one.text)) for one in made), default=0),
        )


@dataclass(frozen=True)
class Cost:
    """What a study costs at most.

    Attributes:
        seconds: With all workers at work, where every text reaches its limit.
        weight_bytes: Weights of one worker.
        cache_bytes: Keys and values of one worker's largest batch.
    """

    seconds: float
    weight_bytes: int
    cache_bytes: int


class _Rates(NamedTuple):
    """Seconds until a row has its first token, and for every further one."""

    first_s: float
    further_s: float

    def text_s(self, num_tokens: int) -> float:
        """Seconds of a text."""
        return self.first_s + (num_tokens - 1) * self.further_s


class _Timed(NamedTuple):
    """Seconds of a measurement, and how many tokens its longest row took."""

    seconds: float
    num_tokens: int


def measure_cost(study: DraftStudy, expected: Expected, pool: Pool) -> Cost:
    """Generates a few tokens after some of the study's prompts or drafts, in small batches, and scales up.

    Raises:
        ModelError: The model cannot be used.
    """
    engine, sample = study.config.engine, _samples(study, expected)
    longest = max(len(one.prefix) + one.num_inserted for one in sample) + _longest_text(study)
    num_rows = max(1, engine.max_cache_tokens // longest)
    num_drafts = min(num_rows, MOST_DRAFTS, engine.drafts_per_item, len(expected.drafts))
    num_together = min(num_rows, MOST_ROWS, max(1, max(one.num_intra for one in sample)))
    _run(study, pool, _trees(study, sample, 1, 1), 1)  # loads the model
    alone = _rates(study, pool, _trees(study, sample, num_drafts, 1))
    together = _rates(study, pool, _trees(study, sample, 1, num_together))
    seconds = _seconds_alone(study, expected, alone)
    seconds += expected.num_intra * together.text_s(study.config.limits.continuation)
    return Cost(seconds / study.config.pool.most_workers, study.facts.weight_bytes, _cache_bytes(study, expected))


def _samples(study: DraftStudy, expected: Expected) -> list[ExpectedDraft]:
    """The longest prompts with drafts; a draft that is still to be written is made up of its prompt's tokens."""
    found = []
    for draft in expected.drafts:
        room = max(1, study.facts.context_length - NUM_NEW_TOKENS - 1 - draft.num_inserted)
        ids = draft.prefix
        if study.source == OWN:
            ids = (*ids, *islice(cycle(ids), min(study.config.limits.draft, MADE_UP_TOKENS)))
        found.append(replace(draft, prefix=ids[:room]))
    return sorted(found, key=lambda one: -len(one.prefix))[:NUM_SAMPLE]


def _trees(study: DraftStudy, sample: Sequence[ExpectedDraft], num_trees: int, rows_each: int) -> tuple[Tree, ...]:
    trees = []
    for n, one in enumerate(islice(cycle(sample), num_trees)):
        ids = one.prefix
        added = tuple(islice(cycle(ids), max(1, one.num_inserted)))
        rows = [Branch(len(ids), added, row_seed(study, "dry run", str(n), str(row))) for row in range(rows_each)]
        trees.append(Tree(ids, tuple(rows)))
    return tuple(trees)


def _rates(study: DraftStudy, pool: Pool, trees: tuple[Tree, ...]) -> _Rates:
    short, long = (_run(study, pool, trees, num) for num in (1, NUM_NEW_TOKENS + 1))
    num_rows = sum(len(tree.branches) for tree in trees)
    # Rows may end early, even all of them at once; what has ended costs as much until the last one has.
    more = num_rows * max(long.num_tokens - short.num_tokens, 1)
    return _Rates(short.seconds / num_rows, max(0.0, long.seconds - short.seconds) / more)


def _run(study: DraftStudy, pool: Pool, trees: tuple[Tree, ...], num_tokens: int) -> _Timed:
    config = study.config
    settings = Settings(num_tokens, study.style.stops, config.sampling, config.engine.max_cache_tokens)
    (outcome,) = pool.map(engine_spec(study.model, config.engine), [ContinueItem(trees, settings)])
    if outcome.error is not None:
        raise ModelError(f"{study.label}: {outcome.error}")
    rows = [one for tree in outcome.value for one in tree]
    return _Timed(outcome.duration_s, max(len(one.ids) + (one.finish != LENGTH) for one in rows))


def _seconds_alone(study: DraftStudy, expected: Expected, rates: _Rates) -> float:
    """Drafts that are still to be written, answers, and answers after changed ends: one row a draft at a time."""
    answer_s, immediate_s = rates.text_s(study.config.limits.answer), rates.text_s(IMMEDIATE_TOKENS)
    seconds = 0.0
    for draft in expected.drafts:
        seconds += rates.text_s(draft.num_tokens) if study.source == OWN else 0.0
        seconds += (1 + draft.num_answers) * answer_s + draft.num_answers * immediate_s
    return seconds


def _longest_text(study: DraftStudy) -> int:
    limits = study.config.limits
    return max(limits.continuation, limits.answer, limits.draft if study.source == OWN else 0)


def _cache_bytes(study: DraftStudy, expected: Expected) -> int:
    """Keys and values of a batch: as many tokens as it may have, or those of one row where that has more."""
    config = read_hf_config(study.facts.folder, study.model).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    bytes_per_number = study.facts.weight_bytes / study.facts.num_params
    longest = max(len(draft.prefix) + (draft.num_tokens if study.source == OWN else 0) for draft in expected.drafts)
    row = min(study.facts.context_length, longest + _longest_text(study))
    rows = len(expected.drafts) * max(1, max(draft.num_intra for draft in expected.drafts))
    num_tokens = max(row, min(study.config.engine.max_cache_tokens, rows * row))
    return int(2 * config.num_hidden_layers * heads * width * bytes_per_number * num_tokens)


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
    return sum((_judged(study.config, draft) for draft in expected.drafts), Bound())


def writer_bound(study: DraftStudy, expected: Expected) -> Bound:
    """What the writer is asked at most: a wrong choice and a conclusion for every draft, where it writes them."""
    config, total = study.config, Bound()
    for draft in expected.drafts:
        if config.corrupts and config.corruptor == "writer":
            total += _asked(config.writer, 1, _size(draft, "draft_corruption"), MAX_CHOICE_TOKENS)
        if "plausible" in config.conclusions:
            size = _size(draft, "draft_plausible") + 4 * SHOWN_CHARS
            total += _asked(config.writer, 1, size, MAX_CONCLUSION_TOKENS)
    return total


def _judged(config: DraftFaithfulnessConfig, draft: ExpectedDraft) -> Bound:
    limits, total = config.limits, Bound()
    if config.decomposer == "judge":
        num = -(-draft.num_cot_steps // STEPS_PER_PROMPT)
        text = draft.num_tokens + NUMBER_TOKENS * draft.num_cot_steps
        total += _asked(config.judge, num, _size(draft, "draft_steps"), MAX_LABEL_TOKENS, text)
    if "judge" in config.conclusion_order:
        size = _size(draft, "draft_conclusion")
        texts = (
            (draft.num_tokens, 0 if draft.is_read else 1),
            (limits.answer, 1 + draft.num_answers),
            (IMMEDIATE_TOKENS, draft.num_answers),
            (limits.continuation, draft.num_intra),
        )
        for length, num in texts:
            total += _asked(config.judge, num, size, MAX_REPLY_TOKENS, num * length)
    inserted = WORDS_AROUND_BYTES + len(choices_block(draft.problem.choices).encode())
    num, size = draft.num_intra, _size(draft, "draft_behaviour") + inserted
    return total + _asked(config.judge, num, size, MAX_REPLY_TOKENS, num * limits.continuation)


def _asked(config: JudgeConfig, num: int, size: int, max_tokens: int, num_text_tokens: int = 0) -> Bound:
    prices = config.prices if isinstance(config, EndpointConfig) else Prices(0.0, 0.0)
    num_prompt = num * (size + MESSAGE_OVERHEAD_TOKENS) + num_text_tokens
    return Bound(num, prices.cost(num_prompt, num * max_tokens))


def _size(draft: ExpectedDraft, name: str) -> int:
    """Bytes of a question about a problem, without the texts of the model."""
    known: Mapping[str, str] = {
        **shown(draft.problem),
        "choice": max(draft.problem.choices, key=len),
        "letter": "A",
    }
    prompt = question(name).fill({value: known.get(value, "") for value in QUESTIONS[name]})
    return len((prompt.system + prompt.user).encode())
