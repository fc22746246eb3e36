"""Which tasks a study has, which rows need no measurement, and how tasks are packed into groups. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from fairwitness.chains.cots import CotRecord, Row, question_of
from fairwitness.chains.items import HeldOut
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.rows import place_key, task_key, unmeasured_row
from fairwitness.fur.sets import draw_retain
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import UnlearnTask
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.problems.draws import item_rng

DISAGREE = "direct and CoT answers differ"
NO_OTHERS = "no other problem has an eligible cot_step to retain"
LATER = "failed at first; the problem's cot_steps have rows of their own now"


@dataclass(frozen=True)
class Planned:
    """One task to measure: its place in the study, and what the engine gets."""

    record: CotRecord
    cot_step_index: int
    lr: float
    attempt: int
    task: UnlearnTask


@dataclass(frozen=True)
class Schedule:
    """All tasks of a study.

    Attributes:
        planned: The tasks to measure, those of one rate after those of another.
        rows: Rows of the tasks that are skipped or failed without measurement.
        num_finished: Tasks that an earlier job finished.
    """

    planned: tuple[Planned, ...]
    rows: tuple[Row, ...]
    num_finished: int


Wanted = Mapping[float, AbstractSet[str]]
"""Learning rates, each with the ids of the problems to measure at it."""


def make_schedule(
    study: FurStudy,
    records: Sequence[CotRecord],
    finished: AbstractSet[str],
    attempts: Mapping[str, int],
    wanted: Wanted | None = None,
) -> Schedule:
    """Decides for every step of every problem and rate whether it is measured, skipped, failed or already finished.

    Args:
        study: The study.
        records: All its problems.
        finished: Keys of tasks that an earlier job finished. A step whose retain set is drawn differently now, because
            a CoT that failed at first is there, is another task and not among them.
        attempts: How often a step was tried before, by the place's key.
        wanted: The part of the study that is asked for; None for every problem at every rate. What a task gets does
            not depend on it: its retain set is drawn from all records.
    """
    records = sorted(records, key=lambda record: record.problem.problem_id)
    pool = [(r.problem.problem_id, _contexts(r)) for r in records]
    num_with_steps = sum(bool(steps) for _, steps in pool)
    planned: list[Planned] = []
    rows: list[Row] = []
    num_finished = 0
    tasks: dict[tuple[str, int], UnlearnTask] = {}

    def drawn(record: CotRecord, index: int) -> UnlearnTask:
        name = (record.problem.problem_id, index)
        if name not in tasks:
            tasks[name] = _task(study, record, index, pool)
        return tasks[name]

    for lr in study.rates if wanted is None else wanted:
        for record in records if wanted is None else (r for r in records if r.problem.problem_id in wanted[lr]):
            rows += _superseded(study, record, lr, finished, attempts)
            for index, status, reason in _verdicts(study, record, num_with_steps):
                place = place_key(study, lr, record.problem, index)
                attempt = attempts.get(place, 0) + 1
                task = drawn(record, index) if reason is None and index is not None else None
                key = task_key(place, task.retain if task else ())
                if key in finished:
                    num_finished += 1
                elif task is not None and index is not None:
                    planned.append(Planned(record, index, lr, attempt, replace(task, task_key=key)))
                else:
                    row = unmeasured_row(study, record, index, lr, status=status, reason=str(reason), attempt=attempt)
                    rows.append(row)
    return Schedule(tuple(planned), tuple(rows), num_finished)


def pack_groups(planned: Sequence[Planned], size: int, num_workers: int) -> list[list[Planned]]:
    """Tasks of one rate and similar length, at most `size` together, and enough groups for all workers."""
    by_rate: dict[float, list[Planned]] = {}
    for item in planned:
        by_rate.setdefault(item.lr, []).append(item)
    size = max(1, min(size, -(-len(planned) // num_workers)))
    groups = []
    for items in by_rate.values():
        items.sort(key=lambda item: (-item.task.num_tokens, item.record.problem.problem_id, item.cot_step_index))
        count = -(-len(items) // size)
        even = -(-len(items) // count)
        groups += [items[start : start + even] for start in range(0, len(items), even)]
    return groups


def engine_group(study: FurStudy, group: Sequence[Planned], held_out: tuple[HeldOut, ...]) -> UnlearnGroup:
    """What the engine is sent for a group."""
    config = study.config
    cot_after = config.cot if config.measure.cot_after else None
    return UnlearnGroup(tuple(item.task for item in group), config.recipe, group[0].lr, held_out, cot_after)


def _superseded(
    study: FurStudy, record: CotRecord, lr: float, finished: AbstractSet[str], attempts: Mapping[str, int]
) -> list[Row]:
    """Takes back the row that said that the whole problem failed, when its CoT is there now."""
    place = place_key(study, lr, record.problem, None)
    num_failed = attempts.get(place, 0)
    if not num_failed or task_key(place) in finished or record.status != "ok" or not record.steps:
        return []
    return [unmeasured_row(study, record, None, lr, status="skipped", reason=LATER, attempt=num_failed + 1)]


def _verdicts(study: FurStudy, record: CotRecord, num_with_steps: int) -> Iterator[tuple[int | None, str, str | None]]:
    if record.status != "ok" or not record.steps:
        status = record.status if record.status != "ok" else "skipped"
        yield None, status, record.reason or "the CoT has no cot_step"
        return
    disagree = not record.agree and not study.config.measure.disagreeing
    for step in record.steps:
        reason = step.ineligible or (DISAGREE if disagree else None) or (NO_OTHERS if num_with_steps < 2 else None)
        yield step.index, "skipped", reason


def _contexts(record: CotRecord) -> list[StepTokens]:
    return [step.tokens(record.prompt_ids, record.cot_ids) for step in record.eligible]


def _task(
    study: FurStudy, record: CotRecord, index: int, pool: Sequence[tuple[str, Sequence[StepTokens]]]
) -> UnlearnTask:
    assert record.direct is not None
    problem_id, seed = record.problem.problem_id, study.config.seed
    after = study.config.measure.cot_after
    return UnlearnTask(
        task_key="",
        forget=record.steps[index].tokens(record.prompt_ids, record.cot_ids),
        retain=draw_retain(pool, problem_id, index, study.config.recipe, seed=seed),
        question=question_of(study, record.problem),
        base_index=record.direct.index,
        cot_prompt=record.prompt_ids if after else (),
        cot_answer_suffix=tuple(study.encoder.cot_answer_suffix_ids) if after else (),
        seed=int(item_rng(seed, problem_id, index, "task").integers(2**31)),
    )
