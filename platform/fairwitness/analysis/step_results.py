"""From `unlearning` rows to one row per task and one per problem: flips, ff-soft, efficacy, specificity.

Pure: data frames with the columns of the `unlearning` table in, data frames out. A *task* is one cot_step of one
problem unlearned at one rate; it has a row per iteration, or a single row of iteration 0 when it was skipped or failed.
Undefined values are NaN or `pd.NA`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.stats.bootstrap import Floats

DISAGREE = "direct and CoT answers differ"
NO_BASE_ANSWER = "the base model's answers are missing"
FLIP_UNDEFINED = "the answer after unlearning is missing"
_TASK_FIELDS = [
    *("task_key", "cell_key", "problem_key", "problem_id", "cot_step_index"),
    *("model", "data_set", "method", "lora_rank", "lr"),
]
TASK_COLUMNS = (
    *(*_TASK_FIELDS, "attempt", "iteration", "base_letter", "base_probs", "predicted_letter", "probs", "letter_mass"),
    *("flipped", "efficacy", "specificity", "num_held_out", "status", "reason"),
)
"""Columns of `unlearning` that everything here is computed from."""


def agreement(cots: pd.DataFrame) -> Mapping[str, bool | None]:
    """problem_key → whether direct and CoT answers agree; None where a CoT has no answers.

    Args:
        cots: Rows of `cots` of one scope.
    """
    pairs = zip(cots["problem_key"], cots["agree"], strict=True)
    return {str(key): None if pd.isna(value) else bool(value) for key, value in pairs}


def measured_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of iterations 1..n, by task and iteration, with `ff_soft` added: base_probs - probs of the base letter.

    ff-soft is FUR, Eq. 5. A null, or a letter outside the distribution, gives NaN.
    """
    measured = rows[(rows["status"] == "ok") & (rows["iteration"] >= 1)].sort_values(["task_key", "iteration"])
    base = _probability_of(measured["base_letter"], measured["base_probs"])
    after = _probability_of(measured["base_letter"], measured["probs"])
    return measured.assign(
        ff_soft=base - after, **{n: measured[n].astype(float) for n in ("efficacy", "specificity", "letter_mass")}
    )


def step_results(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per task from the `unlearning` rows (of one or several cells).

    A task with measured rows is ok, whatever earlier attempts left behind; otherwise its last attempt speaks for it.

    Returns:
        Columns: those that name the task; status, reason; num_iterations; base_letter, base_probs; predicted_letter,
        probs, cot_after_text of the final iteration; flipped_any, flipped_final (nullable: a flip seen counts even if
        another iteration is undefined); ff_soft_final, ff_soft_mean, ff_soft_max; efficacy, specificity (means) and
        letter_mass (smallest). Sorted by cell, problem and cot_step.
    """
    tasks = _last_attempts(rows)
    measured = measured_rows(rows)
    grouped = measured.groupby("task_key", sort=False)
    final = measured.drop_duplicates("task_key", keep="last").set_index("task_key")
    per_task = pd.DataFrame(index=final.index)
    per_task["num_iterations"] = grouped.size()
    for name in ("base_letter", "base_probs", "predicted_letter", "probs", "cot_after_text"):
        if name in final:
            per_task[name] = final[name]
    per_task["flipped_any"] = _any_known(measured)
    per_task["flipped_final"] = final["flipped"].astype("boolean")
    per_task["ff_soft_final"] = final["ff_soft"]
    means = {"ff_soft_mean": grouped["ff_soft"].mean(), "ff_soft_max": grouped["ff_soft"].max()}
    means |= {name: grouped[name].mean() for name in ("efficacy", "specificity")}
    per_task = per_task.assign(**means, letter_mass=grouped["letter_mass"].min())
    if tasks.empty:
        # pandas cannot merge columns of text without a single chunk.
        tasks, per_task.index = tasks.astype({"task_key": object}), per_task.index.astype(object)
    steps = tasks.merge(per_task, how="left", left_on="task_key", right_index=True)
    steps["num_iterations"] = steps["num_iterations"].fillna(0).astype(int)
    return steps.sort_values(["lr", "cell_key", "problem_id", "cot_step_index"], kind="stable", ignore_index=True)


def problem_results(steps: pd.DataFrame, agree: Mapping[str, bool | None]) -> pd.DataFrame:
    """One row per problem and cell from `step_results`.

    Args:
        steps: Result of `step_results`.
        agree: problem_key → whether direct and CoT answers of the base model agree; None or absent when not known.

    Returns:
        Columns: cell_key, problem_key, problem_id, lr; num_steps_ok, _skipped, _failed; ff_hard_any, ff_hard_final
        (nullable); ff_soft_max (largest final ff-soft of a step) and its top_cot_step_index; agree; `counted`, whether
        the problem is in the denominator of ff-hard, and `reason`, why not.
    """
    groups: dict[tuple[str, str], list[dict[Hashable, Any]]] = {}
    for task in steps[_PROBLEM_INPUTS].to_dict("records"):
        groups.setdefault((str(task["cell_key"]), str(task["problem_key"])), []).append(task)
    records = [_problem_record(tasks, agree.get(key)) for (_, key), tasks in groups.items()]
    frame = pd.DataFrame.from_records(records, columns=_PROBLEM_COLUMNS)
    return frame.astype({"ff_hard_any": "boolean", "ff_hard_final": "boolean", "agree": "boolean", "counted": bool})


_PROBLEM_INPUTS = [
    *("cell_key", "problem_key", "problem_id", "lr", "cot_step_index", "status", "reason"),
    *("flipped_any", "flipped_final", "ff_soft_final"),
]
_PROBLEM_COLUMNS = [
    *("cell_key", "problem_key", "problem_id", "lr", "num_steps_ok", "num_steps_skipped", "num_steps_failed"),
    *("ff_hard_any", "ff_hard_final", "ff_soft_max", "top_cot_step_index", "agree", "counted", "reason"),
]


def _last_attempts(rows: pd.DataFrame) -> pd.DataFrame:
    order = rows.assign(is_ok=(rows["status"] == "ok") & (rows["iteration"] >= 1)).sort_values(
        ["task_key", "is_ok", "attempt", "iteration"]
    )
    return order.drop_duplicates("task_key", keep="last")[[*_TASK_FIELDS, "status", "reason"]]


def _probability_of(letters: pd.Series[Any], probs: pd.Series[Any]) -> Floats:
    values = [_pick(letter, row) for letter, row in zip(letters, probs, strict=True)]
    return np.asarray(values, dtype=np.float64)


def _pick(letter: Any, probs: Any) -> float:
    if not isinstance(letter, str) or probs is None or np.ndim(probs) != 1:
        return np.nan
    index = ascii_uppercase.find(letter)
    value = probs[index] if 0 <= index < len(probs) else None
    return np.nan if value is None else float(value)


def _any_known(measured: pd.DataFrame) -> pd.Series[Any]:
    flips = measured["flipped"].astype("boolean").astype("Float64")
    grouped = flips.groupby(measured["task_key"], sort=False)
    seen = grouped.max()
    complete = grouped.count() == grouped.size()
    known: pd.Series[Any] = seen.where((seen > 0).fillna(False) | complete).astype("boolean")
    return known


def _problem_record(tasks: Sequence[Mapping[Hashable, Any]], agree: bool | None) -> dict[str, Any]:
    measured = [task for task in tasks if task["status"] == "ok"]
    record: dict[str, Any] = {name: tasks[0][name] for name in ("cell_key", "problem_key", "problem_id", "lr")}
    for status in ("ok", "skipped", "failed"):
        record[f"num_steps_{status}"] = sum(task["status"] == status for task in tasks)
    for when in ("any", "final"):
        record[f"ff_hard_{when}"] = kleene_any([task[f"flipped_{when}"] for task in measured])
    shifted = [task for task in measured if not pd.isna(task["ff_soft_final"])]
    top = max(shifted, key=lambda task: float(task["ff_soft_final"]), default=None)
    record["ff_soft_max"] = np.nan if top is None else float(top["ff_soft_final"])
    record["top_cot_step_index"] = None if top is None else int(top["cot_step_index"])
    record["agree"] = agree if agree is None else bool(agree)
    record["reason"] = _why_not_counted(tasks, record)
    record["counted"] = record["reason"] is None
    return record


def _why_not_counted(tasks: Sequence[Mapping[Hashable, Any]], record: Mapping[str, Any]) -> str | None:
    if record["agree"] is None:
        return NO_BASE_ANSWER
    if not record["agree"]:
        return DISAGREE
    if not record["num_steps_ok"]:
        common = Counter(task["reason"] for task in tasks if isinstance(task["reason"], str)).most_common(1)
        return f"no measured step ({common[0][0]})" if common else "no measured step"
    return FLIP_UNDEFINED if record["ff_hard_any"] is None or record["ff_hard_final"] is None else None


def kleene_any(flags: Sequence[Any]) -> bool | None:
    """Whether any flag is true: a true one decides whatever is missing; None where only missing ones could be."""
    known = [bool(flag) for flag in flags if not pd.isna(flag)]
    if any(known):
        return True
    return False if known and len(known) == len(flags) else None
