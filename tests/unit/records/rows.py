"""Rows for the tests of records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def task_rows(task: str = "t0", num_iterations: int = 2, **changes: Any) -> list[dict[str, Any]]:
    """The rows of one unlearning task that went well."""
    return [unlearning_row(task, iteration, **changes) for iteration in range(1, num_iterations + 1)]


def unlearning_row(task: str = "t0", iteration: int = 1, **changes: Any) -> dict[str, Any]:
    row = {
        "key": f"{task}/{iteration}",
        "task_key": task,
        "cell_key": "c0",
        "scope_key": "s0",
        "attempt": 1,
        "iteration": iteration,
        "model": "m",
        "model_revision": "r",
        "data_set": "d",
        "problem_id": "p0",
        "problem_key": "pk0",
        "cot_key": "ck0",
        "cot_step_index": 0,
        "method": "ff2",
        "lr": 1e-4,
        "seed": 0,
        "base_letter": "A",
        "base_probs": [0.75, 0.25],
        "predicted_letter": "A",
        "probs": [0.5, 0.5],
        "letter_mass": 0.9,
        "flipped": False,
        "base_cot_step_logprob": -1.0,
        "cot_step_logprob": -2.0,
        "efficacy": 0.5,
        "specificity": 0.95,
        "num_held_out": 20,
        "held_out_letters": ["A", "B"],
        "loss": 13.9,
        "loss_names": ["npo", "kl"],
        "losses": [13.9, 0.0],
        "metric_names": ["log_ratio"],
        "metrics": [-0.5],
        "group_size": 4,
        "worker": "w0",
        "duration_s": 1.5,
        "status": "ok",
    }
    return row | changes


def failed_row(task: str = "t0", attempt: int = 1) -> dict[str, Any]:
    """The one row of a task that failed: no measurements."""
    named = ("task_key", "cell_key", "scope_key", "model", "data_set", "problem_id", "problem_key", "cot_key", "method")
    row = {name: value for name, value in unlearning_row(task).items() if name in named}
    return row | {"key": f"{task}/0", "iteration": 0, "attempt": attempt, "status": "failed", "reason": "actor died"}


def cot_row(key: str = "ck0", *, agree: bool = True, **changes: Any) -> dict[str, Any]:
    row = {"key": key, "scope_key": "s0", "problem_key": "pk0", "problem_id": "p0", "data_set": "d", "model": "m"}
    return row | {"agree": agree, "cot_ids": [1, 2], "direct_probs": [0.75, 0.25], "status": "ok"} | changes


def run_row(key: str = "run0", **changes: Any) -> dict[str, Any]:
    row = {
        "key": key,
        "name": "demo",
        "job": "fur_sweep",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "config_json": '{"seed": 0, "fur": {"lr": [1e-05, 0.0001]}}',
        "config_fingerprint": "f0",
        "code_revision": "code0",
        "models": ["m@r"],
        "data_sets": ["d@1"],
        "scope_keys": ["s0"],
        "cell_keys": ["c0"],
        "status": "running",
    }
    return row | changes
