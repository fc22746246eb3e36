"""Rows of the tables, made from what engines return. Pure: records in, dicts out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase

from fairwitness.chains.cots import CotRecord, Row
from fairwitness.chains.items import HeldOut
from fairwitness.chains.steps import StepTokens
from fairwitness.fur.config import RecipeConfig
from fairwitness.fur.study import FurStudy
from fairwitness.fur.tasks import IterationResult, TaskResult
from fairwitness.problems.problem import Problem
from fairwitness.records.keys import key_of

CONTEXT_TOO_SHORT = "measured, but the CoT after unlearning and the question do not fit into the model's context"


def place_key(study: FurStudy, lr: float, problem: Problem, cot_step_index: int | None) -> str:
    """Key of a step at a rate, whatever retain set it was measured with; without a step, of the problem at a rate."""
    return key_of(cell=study.cell_key(lr), cot=study.cot_key(problem), cot_step=cot_step_index)


def task_key(place: str, retain: Sequence[StepTokens] = ()) -> str:
    """Key of one task: its place and the retain set that was drawn for it, which is all that its result depends on.

    Args:
        place: See `place_key`.
        retain: The retain set; empty where nothing is measured.
    """
    return key_of(place=place, retain=[[step.ids, step.start, step.words] for step in retain])


def unmeasured_row(
    study: FurStudy,
    record: CotRecord,
    cot_step_index: int | None,
    lr: float,
    *,
    status: str,
    reason: str,
    attempt: int = 1,
    key: str | None = None,
) -> Row:
    """Row of `unlearning` for a task that was skipped or failed; `key` is its key where it has a retain set."""
    key = key or task_key(place_key(study, lr, record.problem, cot_step_index))
    row = _task_columns(study, record, cot_step_index, lr, key, attempt)
    return {**row, "key": key_of(task_key=key, iteration=0), "iteration": 0, "status": status, "reason": reason}


def measured_rows(
    study: FurStudy,
    record: CotRecord,
    cot_step_index: int,
    lr: float,
    result: TaskResult,
    held_out: Sequence[HeldOut],
    *,
    attempt: int,
    worker: str,
    duration_s: float,
) -> list[Row]:
    """Rows of `unlearning` for a measured task, one per iteration."""
    common = _task_columns(study, record, cot_step_index, lr, result.task_key, attempt)
    common |= {"group_size": result.group_size, "worker": worker, "duration_s": duration_s, "status": "ok"}
    rows = [
        {**common, **_measured_columns(record, cot_step_index, measured, held_out, study.config.recipe)}
        for measured in result.measured
    ]
    if result.cot_after is not None:
        rows[-1] |= {
            "cot_after_ids": list(result.cot_after.ids),
            "cot_after_text": result.cot_after.text,
            "cot_after_letter": ascii_uppercase[result.cot_after.index],
        }
    elif study.config.measure.cot_after:
        rows[-1]["reason"] = CONTEXT_TOO_SHORT
    for row in rows:
        row["key"] = key_of(task_key=result.task_key, iteration=row["iteration"])
    return rows


def _task_columns(
    study: FurStudy, record: CotRecord, cot_step_index: int | None, lr: float, key: str, attempt: int
) -> Row:
    return {
        "task_key": key,
        "place_key": place_key(study, lr, record.problem, cot_step_index),
        "cell_key": study.cell_key(lr),
        **study.columns,
        "attempt": attempt,
        "model_revision": study.facts.revision,
        "problem_id": record.problem.problem_id,
        "problem_key": study.data.problem_key(record.problem),
        "cot_key": study.cot_key(record.problem),
        "cot_step_index": cot_step_index,
        "method": study.config.recipe.method.kind,
        "lora_rank": study.lora_rank,
        "lr": lr,
        "seed": study.config.seed,
    }


def _measured_columns(
    record: CotRecord, cot_step_index: int, measured: IterationResult, held_out: Sequence[HeldOut], recipe: RecipeConfig
) -> Row:
    assert record.direct is not None
    base_logprob = record.base_logprobs[cot_step_index]
    assert base_logprob is not None
    unchanged = [now == held.base_index for now, held in zip(measured.held_out, held_out, strict=True)]
    return {
        "iteration": measured.iteration,
        "base_letter": ascii_uppercase[record.direct.index],
        "base_probs": list(record.direct.probs),
        "predicted_letter": ascii_uppercase[measured.index],
        "probs": list(measured.probs),
        "letter_mass": measured.letter_mass,
        "flipped": measured.index != record.direct.index,
        "base_cot_step_logprob": base_logprob,
        "cot_step_logprob": measured.cot_step_logprob,
        "efficacy": efficacy(base_logprob, measured.cot_step_logprob),
        "specificity": sum(unchanged) / len(unchanged) if unchanged else None,
        "num_held_out": len(unchanged),
        "held_out_letters": [ascii_uppercase[index] for index in measured.held_out],
        "loss": sum(weight * measured.losses[name] for name, weight in recipe.coefficients.items()),
        "loss_names": list(recipe.coefficients),
        "losses": [measured.losses[name] for name in recipe.coefficients],
        "metric_names": list(measured.metrics),
        "metrics": list(measured.metrics.values()),
    }


def efficacy(base_logprob: float, logprob: float) -> float:
    """Share of the step's probability that unlearning took away, `(p0 - p*)/p0` with p = exp(mean log p).

    At most 1; negative where the step became more probable. Computed as `-expm1(log p* - log p0)`, exact for small
    changes.

    Source: FUR, Eq. 1 and 2.
    """
    return -math.expm1(logprob - base_logprob)
