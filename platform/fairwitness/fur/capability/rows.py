"""Rows of `capability`. Pure: what is planned and measured in, dicts out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from fairwitness.fur.capability.plan import CapabilityPlan
from fairwitness.fur.rows import Row
from fairwitness.fur.schedule import Planned
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of


def measured_row(
    plan: CapabilityPlan,
    task: Planned,
    before: Sequence[int],
    after: Sequence[int],
    *,
    attempt: int,
    group_size: int,
    duration_s: float,
) -> Row:
    """Row of a task with the answers before and after it.

    Args:
        plan: The plan.
        task: One of its tasks.
        before: The base model's choice (0 for A) on each question.
        after: The choice after the last iteration.
        attempt: How often the task was tried, this time included.
        group_size: How many tasks were unlearned at once.
        duration_s: Seconds of the whole group.
    """
    gold = [problem.gold for problem in plan.problems]
    letters = [[ascii_uppercase[index] for index in choices] for choices in (before, after)]
    right = [sum(letter == correct for letter, correct in zip(part, gold, strict=True)) for part in letters]
    return _task_columns(plan, task, attempt) | {
        "num_questions": len(gold),
        "num_correct_before": right[0],
        "num_correct_after": right[1],
        "num_changed": sum(a != b for a, b in zip(*letters, strict=True)),
        "question_ids": [problem.problem_id for problem in plan.problems],
        "gold_letters": gold,
        "letters_before": letters[0],
        "letters_after": letters[1],
        "group_size": group_size,
        "duration_s": duration_s,
        "status": "ok",
        "reason": None,
    }


def failed_row(plan: CapabilityPlan, task: Planned, reason: str, *, attempt: int) -> Row:
    """Row of a task that could not be measured."""
    return _task_columns(plan, task, attempt) | {"status": "failed", "reason": reason}


def other_rows(plan: CapabilityPlan) -> Iterator[Row]:
    """Rows of what is skipped: questions that are not asked, and the study where it has no rate or no CoT."""
    for problem, reason in plan.left_out:
        yield _question_row(plan, problem, reason)
    if plan.reason is not None:
        yield _study_row(plan, plan.reason)


def _task_columns(plan: CapabilityPlan, task: Planned, attempt: int) -> Row:
    study = plan.study
    return _common(plan) | {
        "key": plan.row_key(task.task.task_key),
        "task_key": task.task.task_key,
        "cell_key": study.cell_key(task.lr),
        "attempt": attempt,
        "problem_id": task.record.problem.problem_id,
        "problem_key": study.data.problem_key(task.record.problem),
        "cot_step_index": task.cot_step_index,
        **_method(plan),
        "lr": task.lr,
    }


def _question_row(plan: CapabilityPlan, problem: Problem, reason: str) -> Row:
    question = [problem.problem_id, problem.question, list(problem.choices)]
    key = key_of(scope=plan.study.scope_key, questions=plan.revision, question=question)
    return _common(plan) | {"key": key, "question_id": problem.problem_id, "status": "skipped", "reason": reason}


def _study_row(plan: CapabilityPlan, reason: str) -> Row:
    key = key_of(scope=plan.study.scope_key, questions=plan.revision, lr=plan.lr, **_method(plan))
    return _common(plan) | _method(plan) | {"key": key, "lr": plan.lr, "status": "skipped", "reason": reason}


def _common(plan: CapabilityPlan) -> Row:
    return {
        "scope_key": plan.study.scope_key,
        "attempt": 1,
        "model": plan.study.facts.name,
        "data_set": plan.study.data.loaded.name,
        "capability_set": plan.set_name,
        "capability_revision": plan.revision,
    }


def _method(plan: CapabilityPlan) -> Row:
    return {"method": plan.study.config.recipe.method.kind, "lora_rank": plan.study.lora_rank}
