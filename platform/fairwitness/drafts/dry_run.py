"""Says what a measurement of drafts would do, ask and need, after a few tokens of calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.engine import ContinueItem, engine_spec
from fairwitness.drafts.expected import Bound, Expected, expect, judge_bound, prices_of, writer_bound
from fairwitness.drafts.making import IMMEDIATE_TOKENS, row_seed
from fairwitness.drafts.steps import Ids
from fairwitness.drafts.study import DraftStudy
from fairwitness.errors import ModelError
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.judges.config import EndpointConfig, JudgeConfig, RulesConfig
from fairwitness.lm.continuation import LENGTH, Branch, Settings, Tree
from fairwitness.lm.inspect import read_hf_config
from fairwitness.records.progress import duration
from fairwitness.records.run_dir import RunDirectory
from fairwitness_schemas.drafts import OWN

NUM_SAMPLE = 4
"""Drafts, or prompts of drafts, that are measured."""
NUM_NEW_TOKENS = 8
"""Tokens that each row generates in the longer of two measurements."""
MOST_DRAFTS, MOST_ROWS = 2, 8
"""Rows of a measurement; more at once cost less each, so that what is scaled up stays an upper bound."""
MADE_UP_TOKENS = 128
"""Tokens of a draft that stands for one that the model is still to write, unless its limit is lower."""


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


class _Sample(NamedTuple):
    """A prompt with its draft, tokens that a row adds to it before it goes on, and how many rows do."""

    ids: Ids
    num_added: int
    num_rows: int


class _Rates(NamedTuple):
    """Seconds until a row has its first token, and for every further one."""

    first_s: float
    further_s: float


def measure_cost(study: DraftStudy, expected: Expected, pool: Pool) -> Cost:
    """Generates a few tokens after some of the study's prompts or drafts, in small batches, and scales up.

    Raises:
        ModelError: The model cannot be used.
    """
    sample = _samples(study, expected)
    longest = max(len(one.ids) + one.num_added for one in sample) + _longest_text(study)
    num_rows = max(1, study.config.engine.max_cache_tokens // longest)
    num_drafts = min(num_rows, MOST_DRAFTS, study.config.engine.drafts_per_item, len(expected.drafts))
    num_together = min(num_rows, MOST_ROWS, max(1, max(one.num_rows for one in sample)))
    _run(study, pool, _trees(study, sample, 1, 1), 1)  # loads the model
    alone = _rates(study, pool, _trees(study, sample, num_drafts, 1))
    together = _rates(study, pool, _trees(study, sample, 1, num_together))
    seconds = _seconds_alone(study, expected, alone)
    seconds += expected.num_intra * _text_s(together, study.config.limits.continuation)
    workers = study.config.pool.most_workers
    return Cost(seconds / workers, study.facts.weight_bytes, _cache_bytes(study, expected))


def _samples(study: DraftStudy, expected: Expected) -> list[_Sample]:
    """The longest prompts with drafts; a draft that is still to be written is made up of its prompt's tokens."""
    found = []
    for draft in expected.drafts:
        room = max(1, study.facts.context_length - NUM_NEW_TOKENS - 1 - draft.num_inserted)
        ids = draft.prefix
        if study.source == OWN:
            ids = (*ids, *islice(cycle(ids), min(study.config.limits.draft, MADE_UP_TOKENS)))
        found.append(_Sample(ids[:room], draft.num_inserted, draft.num_intra))
    return sorted(found, key=lambda one: -len(one.ids))[:NUM_SAMPLE]


def _trees(study: DraftStudy, sample: Sequence[_Sample], num_trees: int, rows_each: int) -> tuple[Tree, ...]:
    trees = []
    for n, one in enumerate(islice(cycle(sample), num_trees)):
        added = tuple(islice(cycle(one.ids), max(1, one.num_added)))
        rows = [Branch(len(one.ids), added, row_seed(study, "dry run", str(n), str(row))) for row in range(rows_each)]
        trees.append(Tree(one.ids, tuple(rows)))
    return tuple(trees)


class _Timed(NamedTuple):
    """Seconds of a measurement, and how many tokens its longest row took."""

    seconds: float
    num_tokens: int


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
    limits, seconds = study.config.limits, 0.0
    for draft in expected.drafts:
        seconds += _text_s(rates, draft.num_tokens) if study.source == OWN else 0.0
        seconds += (1 + draft.num_answers) * _text_s(rates, limits.answer)
        seconds += draft.num_answers * _text_s(rates, IMMEDIATE_TOKENS)
    return seconds


def _text_s(rates: _Rates, num_tokens: int) -> float:
    return rates.first_s + (num_tokens - 1) * rates.further_s


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
            yield f"{who} {one.shown_name}: {_asked(one, bound)}"
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


def _asked(config: JudgeConfig, bound: Bound) -> str:
    requests = f"at most {_number(bound.num, 'request')}"
    if not isinstance(config, EndpointConfig) or not any(prices_of(config)):
        return requests
    limit = f"; max_cost ends them at {config.max_cost:g}" if config.max_cost is not None else ""
    return f"{requests}, which cost at most about {bound.cost:.2f}{limit}"


def _number(value: int, one: str, more: str | None = None) -> str:
    return f"{value:,} {one if value == 1 else more or one + 's'}"
