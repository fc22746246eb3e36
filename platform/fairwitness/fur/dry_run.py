"""Says what a sweep would do and what it would need, after a short calibration on a few real problems."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairwitness.fleet.factory import make_pool
from fairwitness.fleet.pool import Pool
from fairwitness.fur.client import EngineClient
from fairwitness.fur.cots import CotRecord, score_records, write_records
from fairwitness.fur.memory import Capacity
from fairwitness.fur.schedule import engine_group, make_schedule, pack_groups
from fairwitness.fur.study import Loader, Study, prepare_studies
from fairwitness.fur.sweep_config import FurSweepConfig
from fairwitness.problems.problem import Problem

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


def dry_run(config: FurSweepConfig, *, loaders: Mapping[str, Loader]) -> Iterator[str]:
    """Lines that say what would be run. Nothing is stored.

    Raises:
        FairwitnessError: As for the run itself.
    """
    studies = prepare_studies(config, loaders)
    size = f"{_number(len(studies), 'study', 'studies')}, {_number(config.pool.max_actors, 'actor', 'actors')}"
    yield f"run {config.name}: {size}, results in {config.output.dir}"
    total = 0.0
    scopes: set[str] = set()
    with make_pool(config.pool) as pool:
        for study in studies:
            estimate = calibrate(study, pool, has_cots=study.scope_key in scopes)
            total += estimate.seconds
            scopes.add(study.scope_key)
            yield f"{study.label}: {_describe(study, estimate)}"
    yield f"time: about {_duration(total)} (calibrated on this machine)"


def calibrate(study: Study, pool: Pool, *, has_cots: bool = False) -> Estimate:
    """Measures CoTs of a few problems and one group of tasks, and scales up.

    Args:
        study: The study.
        pool: Where to measure.
        has_cots: A study of another method writes the CoTs, so that they cost this one nothing.
    """
    run = EngineClient(study, pool)
    sample = study.data.selection.measured[:NUM_CALIBRATION_PROBLEMS]
    held_out = run.held_out()
    start = time.perf_counter()
    records = _records(study, pool, run, sample)
    seconds_cots = 0.0 if has_cots else (time.perf_counter() - start) / len(sample)
    schedule = make_schedule(study, records, frozenset(), {})
    num_problems = len(study.data.selection.measured)
    if not schedule.planned:
        ((reason, _),) = Counter(str(row["reason"]) for row in schedule.rows).most_common(1)
        return Estimate(num_problems, 0, 0, None, num_problems * seconds_cots / study.config.pool.max_actors, reason)
    capacity = run.capacity(schedule.planned, held_out)
    group = pack_groups([p for p in schedule.planned if p.lr == study.rates[0]], capacity.group_size, 1)[0]
    start = time.perf_counter()
    run.ask(engine_group(study, group, held_out))
    seconds_task = (time.perf_counter() - start) / len(group)
    num_tasks = round(len(schedule.planned) / len(sample) * num_problems)
    workers = study.config.pool.max_actors
    seconds = (num_problems * seconds_cots + num_tasks * seconds_task) / workers
    return Estimate(num_problems, num_tasks, math.ceil(num_tasks / capacity.group_size), capacity, seconds)


def _records(study: Study, pool: Pool, run: EngineClient, sample: Sequence[Problem]) -> list[CotRecord]:
    written = [r for batch in write_records(study, pool, run.spec, sample) for r in batch]
    return [r for batch in score_records(pool, run.spec, written) for r in batch]


def _describe(study: Study, estimate: Estimate) -> str:
    capacity = estimate.capacity
    start = (
        f"{_number(estimate.num_problems, 'problem', 'problems')}, {len(study.data.selection.held_out)} held out, "
        f"{_number(len(study.rates), 'rate', 'rates')}"
    )
    if capacity is None:
        sample = min(estimate.num_problems, NUM_CALIBRATION_PROBLEMS)
        return f"{start}; no task among the first {sample} problems, mostly because: {estimate.why_none}"
    return (
        f"{start}, about {estimate.num_tasks} tasks in {estimate.num_groups} groups of "
        f"{capacity.group_size}; memory of an actor about {capacity.peak_bytes / GIB:.2f} GiB "
        f"({capacity.free_bytes / GIB:.1f} GiB free), time about {_duration(estimate.seconds)}"
    )


def _number(value: int, one: str, more: str) -> str:
    return f"{value} {one if value == 1 else more}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
