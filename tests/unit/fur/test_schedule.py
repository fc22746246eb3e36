"""Which tasks a study has: every step of every problem at every rate ends exactly once; groups hold all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairwitness.chains.cots import CotRecord
from fairwitness.fur.rows import place_key, task_key
from fairwitness.fur.schedule import (
    DISAGREE,
    LATER,
    NO_OTHERS,
    Planned,
    Schedule,
    engine_group,
    make_schedule,
    pack_groups,
)
from fairwitness.fur.study import FurStudy
from tests.helpers.studies import make_study, measured, record
from tests.helpers.sweeps import RATES, TWO_STEPS

INELIGIBLE = "So it is. It is so."


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Callable[..., FurStudy]:
    return lambda **changes: make_study(tmp_path_factory.mktemp("study"), tiny_folder("llama"), **changes)


@pytest.fixture(scope="module")
def study(make: Callable[..., FurStudy]) -> FurStudy:
    return make(measure={"disagreeing": False})


def all_of(study: FurStudy, records: Sequence[CotRecord]) -> Schedule:
    return make_schedule(study, records, frozenset(), {})


def place_of(study: FurStudy, item: Planned) -> str:
    return place_key(study, item.lr, item.record.problem, item.cot_step_index)


def reasons(schedule: Schedule) -> Counter[tuple[str, str]]:
    return Counter((row["status"], row["reason"]) for row in schedule.rows)


def test_every_step_at_every_rate_ends_exactly_once(study: FurStudy) -> None:
    usual, some, disagree, empty, failed = measured(study)
    records = [
        record(study, usual),
        record(study, some, f"{TWO_STEPS} So it is."),
        record(study, disagree, direct=0, given_cot=1),
        replace(record(study, empty, ""), status="skipped", reason="the CoT is empty"),
        replace(record(study, failed, ""), status="failed", reason="too long"),
    ]
    schedule = all_of(study, records)
    planned = [(item.lr, item.record.problem.problem_id, item.cot_step_index) for item in schedule.planned]
    rows = [(row["lr"], row["problem_id"], row["cot_step_index"]) for row in schedule.rows]
    expected = [
        (lr, one.problem.problem_id, index)
        for lr in RATES
        for one in records
        for index in (range(len(one.steps)) if one.status == "ok" else [None])
    ]
    assert Counter(planned + rows) == Counter(expected)
    assert len(planned) == 4 * len(RATES)
    assert reasons(schedule) == {
        ("skipped", "fewer than 2 content words"): 2,
        ("skipped", DISAGREE): 4,
        ("skipped", "the CoT is empty"): 2,
        ("failed", "too long"): 2,
    }
    keys = [item.task.task_key for item in schedule.planned] + [row["task_key"] for row in schedule.rows]
    assert len(set(keys)) == len(expected)


def test_tasks_say_what_is_forgotten_and_asked(study: FurStudy) -> None:
    records = [record(study, one, direct=2, given_cot=2) for one in measured(study)]
    for item in all_of(study, records).planned:
        own, step = item.record, item.record.steps[item.cot_step_index]
        assert item.task.forget.ids == (*own.prompt_ids, *own.cot_ids[: step.token_end])
        assert item.task.base_index == 2
        assert item.task.question.ids == tuple(study.encoder.direct(own.problem))
        place = place_key(study, item.lr, own.problem, item.cot_step_index)
        assert item.task.task_key == task_key(place, item.task.retain)
        assert len(item.task.retain) == 4
        assert own.prompt_ids not in [kept.ids[: len(own.prompt_ids)] for kept in item.task.retain]
        assert (item.task.cot_prompt, item.task.cot_answer_suffix) == ((), ())


def test_rates_of_a_step_share_everything_but_the_key(study: FurStudy) -> None:
    planned = all_of(study, [record(study, one) for one in measured(study)]).planned
    by_place: dict[tuple[str, int], list[object]] = {}
    for item in planned:
        place = (item.record.problem.problem_id, item.cot_step_index)
        by_place.setdefault(place, []).append(replace(item.task, task_key=""))
    assert all(len(tasks) == len(RATES) and len(set(tasks)) == 1 for tasks in by_place.values())
    assert len({item.task.seed for item in planned}) == len(by_place)


def test_disagreeing_problems_are_measured_on_request(make: Callable[..., FurStudy]) -> None:
    study = make(measure={"disagreeing": True})
    records = [record(study, one, direct=0, given_cot=1) for one in measured(study)]
    schedule = all_of(study, records)
    assert (len(schedule.planned), len(schedule.rows)) == (2 * 5 * len(RATES), 0)


def test_cot_after_brings_the_prompt_along(make: Callable[..., FurStudy]) -> None:
    study = make(measure={"cot_after": True})
    planned = all_of(study, [record(study, one) for one in measured(study)]).planned
    assert planned[0].task.cot_prompt == planned[0].record.prompt_ids
    assert planned[0].task.cot_answer_suffix == tuple(study.encoder.cot_answer_suffix_ids)
    group = engine_group(study, planned[:3], ())
    assert group.cot_after == study.config.cot
    assert (len(group.tasks), group.lr, group.recipe) == (3, RATES[0], study.config.recipe)


def test_cot_of_only_ineligible_steps_is_skipped_and_never_retained(study: FurStudy) -> None:
    problems = measured(study)
    records = [record(study, problems[0], INELIGIBLE), *(record(study, one) for one in problems[1:])]
    schedule = all_of(study, records)
    assert reasons(schedule) == {("skipped", "fewer than 2 content words"): 2 * len(RATES)}
    assert {len(item.task.retain) for item in schedule.planned} == {3}


def test_ok_record_without_a_step_is_skipped(study: FurStudy) -> None:
    one, other, *_ = measured(study)
    schedule = all_of(study, [record(study, one, ""), record(study, other)])
    assert ("skipped", "the CoT has no cot_step") in reasons(schedule)


@pytest.mark.parametrize("others", [[], [INELIGIBLE]])
def test_no_other_problem_to_retain(study: FurStudy, others: list[str]) -> None:
    problems = measured(study)
    records = [record(study, problems[0])]
    records += [record(study, one, text) for one, text in zip(problems[1:], others, strict=False)]
    schedule = all_of(study, records)
    assert schedule.planned == ()
    assert reasons(schedule)["skipped", NO_OTHERS] == 2 * len(RATES)


def test_schedule_does_not_depend_on_the_order_of_records(study: FurStudy) -> None:
    records = [record(study, one) for one in measured(study)]
    assert all_of(study, records) == all_of(study, records[::-1])


def test_finished_tasks_are_left_out_and_failed_ones_counted(study: FurStudy) -> None:
    records = [record(study, one) for one in measured(study)]
    records[0] = replace(records[0], direct=None, given_cot=None, steps=(), status="skipped", reason="empty")
    first = all_of(study, records)
    done = {first.planned[0].task.task_key, first.rows[0]["task_key"]}
    retried = first.planned[1].task.task_key
    again = make_schedule(study, records, done, {place_of(study, first.planned[1]): 2})
    assert again.num_finished == 2
    assert len(again.planned) == len(first.planned) - 1
    assert len(again.rows) == len(first.rows) - 1
    attempts = {item.task.task_key: item.attempt for item in again.planned}
    assert attempts.pop(retried) == 3
    assert set(attempts.values()) == {1}
    # What is measured does not depend on what is finished.
    tasks = {item.task.task_key: item.task for item in first.planned}
    assert all(tasks[item.task.task_key] == item.task for item in again.planned)


def test_failed_problem_that_succeeds_later_is_no_longer_failed(study: FurStudy) -> None:
    records = [record(study, one) for one in measured(study)]
    broken = replace(records[0], status="failed", reason="worker died")
    failed = all_of(study, [broken, *records[1:]]).rows
    assert {(row["status"], row["cot_step_index"]) for row in failed} == {("failed", None)}
    attempts = {row["place_key"]: 1 for row in failed}
    again = make_schedule(study, records, frozenset(), attempts)
    assert {row["task_key"] for row in again.rows} == {row["task_key"] for row in failed}
    assert {(row["status"], row["reason"], row["attempt"]) for row in again.rows} == {("skipped", LATER, 2)}
    assert len(again.planned) == 10 * len(RATES)
    # Once that is stored it is not said again.
    assert make_schedule(study, records, {row["task_key"] for row in again.rows}, attempts).rows == ()


def test_cot_that_is_there_later_brings_new_tasks_where_it_is_retained(make: Callable[..., FurStudy]) -> None:
    study = make(num_problems=9)
    records = [record(study, one) for one in measured(study)]
    late = records[3]
    broken = [replace(one, status="failed", reason="worker died") if one is late else one for one in records]
    first = all_of(study, broken)
    attempts = {place_of(study, item): 1 for item in first.planned}
    again = make_schedule(study, records, {item.task.task_key for item in first.planned}, attempts)
    # As if it had been there from the start, except that the tasks whose retain set is the same are done.
    at_once = {item.task.task_key: item for item in all_of(study, records).planned}
    old = {item.task.task_key for item in first.planned}
    assert {item.task.task_key for item in again.planned} == at_once.keys() - old
    assert all(item.task == at_once[item.task.task_key].task for item in again.planned)
    anew = [item for item in again.planned if item.record.problem.problem_id != late.problem.problem_id]
    assert 0 < len(anew) < len(first.planned)
    for item in anew:
        assert any(kept.ids[: len(late.prompt_ids)] == late.prompt_ids for kept in item.task.retain)
        assert item.attempt == 2
    assert again.num_finished == len(first.planned) - len(anew)


def test_step_without_others_to_retain_is_measured_once_there_are(study: FurStudy) -> None:
    one, other, *_ = measured(study)
    alone = all_of(study, [record(study, one)])
    done = {row["task_key"] for row in alone.rows}
    assert reasons(alone) == {("skipped", NO_OTHERS): 2 * len(RATES)}
    again = make_schedule(study, [record(study, one), record(study, other)], done, {})
    assert len(again.planned) == 4 * len(RATES)


@pytest.mark.parametrize("num_workers", [1, 3, 50])
@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_groups_hold_every_task_once(study: FurStudy, size: int, num_workers: int) -> None:
    texts = [TWO_STEPS, "A fox digs dens.", f"{TWO_STEPS} {TWO_STEPS}"]
    records = [record(study, one, texts[number % 3]) for number, one in enumerate(measured(study))]
    planned = all_of(study, records).planned
    groups = pack_groups(planned, size, num_workers)
    packed = [item.task.task_key for group in groups for item in group]
    assert Counter(packed) == Counter(item.task.task_key for item in planned)
    assert all(len({item.lr for item in group}) == 1 for group in groups)
    assert max(map(len, groups)) <= size
    assert len(groups) >= min(num_workers, len(planned))
    for group in groups:
        lengths = [item.task.num_tokens for item in group]
        assert lengths == sorted(lengths, reverse=True)


def test_groups_are_even_and_as_few_as_possible(study: FurStudy) -> None:
    planned = all_of(study, [record(study, one) for one in measured(study)]).planned
    assert len(planned) == 10 * len(RATES)
    assert [len(group) for group in pack_groups(planned, 4, 1)] == [4, 4, 2] * len(RATES)
    assert [len(group) for group in pack_groups(planned, 6, 1)] == [5, 5] * len(RATES)


def test_no_tasks_give_no_groups() -> None:
    assert pack_groups([], 4, 2) == []
