"""Says what a measurement of drafts would do, ask and need, after a few tokens of calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairwitness.drafts.asking import Bound, judge_bound, prices_of, writer_bound
from fairwitness.drafts.calibration import Cost, measure_cost
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.expected import Expected, expect
from fairwitness.drafts.study import DraftStudy, prepare_draft_studies
from fairwitness.drafts.workflow import check_judges
from fairwitness.fleet.factory import make_pool
from fairwitness.judges.config import EndpointConfig, JudgeConfig, RulesConfig
from fairwitness.records.data_set import Loader
from fairwitness.records.progress import duration
from fairwitness.records.run_dir import RunDirectory

GIB = 2**30


def draft_dry_run(config: DraftFaithfulnessConfig, *, loaders: Mapping[str, Loader]) -> Iterator[str]:
    """Lines that say what would be run, each before the work that it announces. Nothing is stored, no judge is asked.

    Raises:
        FairwitnessError: As for the run itself.
    """
    yield f"dry run of {config.name}: reading models' settings, data sets and drafts; nothing is stored"
    check_judges(config)
    studies = prepare_draft_studies(config, loaders)
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
