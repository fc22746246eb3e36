"""Says what a sweep would do and what it would need, after a short calibration on a few real problems."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairwitness.chains.cots import CotRecord, score_records, write_records
from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.fur.client import FurClient
from fairwitness.fur.config import StudyConfig
from fairwitness.fur.memory import Capacity
from fairwitness.fur.schedule import engine_group, make_schedule, pack_groups
from fairwitness.fur.study import FurStudy
from fairwitness.problems.problem import Problem
from fairwitness.records.progress import duration
from fairwitness.records.run_dir import RunDirectory

NUM_CALIBRATION_PROBLEMS = 6
GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """What one study would take.

    Attributes:
        num_problems: Problems measured.
        num_tasks: Expected number of tasks over all rates.
        num_groups: Expected number of groups.
        capacity: Group size and memory of one actor; None where the sample has no task to measure it with.
        seconds: Expected seconds with all actors at work.
        why_none: The most frequent reason why the sample's cot_steps are no tasks; None where there are tasks.
    """

    num_problems: int
    num_tasks: int
    num_groups: int
    capacity: Capacity | None
    seconds: float
    why_none: str | None = None


def dry_run(config: StudyConfig, studies: Sequence[FurStudy]) -> Iterator[str]:
    """Lines that say what would be run, each before the work that it announces. Nothing is stored.

    Args:
        config: The configuration.
        studies: Its studies.

    Raises:
        FairwitnessError: As for the run itself.
    """
    actors = _number(config.pool.most_workers, "actor", "actors")
    place = RunDirectory(config.output.dir, config.name).path
    yield f"{_number(len(studies), 'study', 'studies')} for {actors}; the run would write to {place}"
    total = 0.0
    scopes: set[str] = set()
    with make_pool(config.pool) as pool:
        for study in studies:
            yield f"{study.label}: {_what(study)}"
            estimate = calibrate(study, pool, has_cots=study.scope_key in scopes)
            total += estimate.seconds
            scopes.add(study.scope_key)
            yield f"{study.label}: {_estimated(study, estimate)}"
    if len(studies) > 1:
        yield f"all studies: about {duration(total)}"


def calibrate(study: FurStudy, pool: Pool, *, has_cots: bool = False) -> Estimate:
    """Measures CoTs of a few problems and one group of tasks, and scales up.

    Args:
        study: The study.
        pool: Where to measure.
        has_cots: A study of another method writes the CoTs, so that they cost this one nothing.
    """
    run = FurClient(study, pool)
    sample = study.data.selection.measured[:NUM_CALIBRATION_PROBLEMS]
    held_out = run.held_out()
    start = time.perf_counter()
    records = _records(study, pool, run, sample)
    seconds_cots = 0.0 if has_cots else (time.perf_counter() - start) / len(sample)
    schedule = make_schedule(study, records, frozenset(), {})
    num_problems = len(study.data.selection.measured)
    if not schedule.planned:
        ((reason, _),) = Counter(str(row["reason"]) for row in schedule.rows).most_common(1)
        return Estimate(num_problems, 0, 0, None, num_problems * seconds_cots / study.config.pool.most_workers, reason)
    capacity = run.capacity(schedule.planned, held_out)
    group = pack_groups([p for p in schedule.planned if p.lr == study.rates[0]], capacity.group_size, 1)[0]
    start = time.perf_counter()
    run.ask(engine_group(study, group, held_out), "one group of tasks")
    seconds_task = (time.perf_counter() - start) / len(group)
    num_tasks = round(len(schedule.planned) / len(sample) * num_problems)
    workers = study.config.pool.most_workers
    seconds = (num_problems * seconds_cots + num_tasks * seconds_task) / workers
    return Estimate(num_problems, num_tasks, math.ceil(num_tasks / capacity.group_size), capacity, seconds)


def _records(study: FurStudy, pool: Pool, run: FurClient, sample: Sequence[Problem]) -> list[CotRecord]:
    written = [r for batch in write_records(study, pool, run.spec, sample) for r in batch]
    return [r for batch in score_records(pool, run.spec, written) for r in batch]


def _what(study: FurStudy) -> str:
    num_problems = len(study.data.selection.measured)
    sample = _number(min(num_problems, NUM_CALIBRATION_PROBLEMS), "problem", "problems")
    return (
        f"{_number(num_problems, 'problem', 'problems')}, {len(study.data.selection.held_out)} held out, "
        f"{_number(len(study.rates), 'rate', 'rates')}; measuring {sample} and one group of tasks now"
    )


def _estimated(study: FurStudy, estimate: Estimate) -> str:
    capacity = estimate.capacity
    if capacity is None:
        sample = _number(min(estimate.num_problems, NUM_CALIBRATION_PROBLEMS), "problem", "problems")
        return f"no task among the first {sample}, mostly because: {estimate.why_none}"
    return (
        f"about {_number(estimate.num_tasks, 'task', 'tasks')} in {_number(estimate.num_groups, 'group', 'groups')} of "
        f"up to {capacity.group_size}; {capacity.peak_bytes / GIB:.2f} GiB per actor "
        f"({capacity.free_bytes / GIB:.1f} GiB free here); {duration(estimate.seconds)} on machines like this one"
    )


def _number(value: int, one: str, more: str) -> str:
    return f"{value} {one if value == 1 else more}"
