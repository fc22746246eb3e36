"""General capability of a cell, worked by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

from fairwitness.analysis.capability import NOTHING_CHANGED, CellCapability, cell_capabilities
from fairwitness.stats.bootstrap import wilson

GOLD = list("ABCD")
BEFORE = list("ABCA")  # three of four are right


def row(problem: str, step: int, after: str, **given: Any) -> dict[str, Any]:
    letters = list(after)
    values = {
        "key": f"{problem}/{step}",
        "task_key": f"task-{problem}/{step}",
        "cell_key": "cell",
        "scope_key": "scope",
        "model": "m",
        "data_set": "d",
        "problem_key": f"key-{problem}",
        "method": "ff2",
        "lora_rank": None,
        "lr": 1e-5,
        "capability_set": "mmlu",
        "capability_revision": "r1",
        "question_id": None,
        "gold_letters": GOLD,
        "letters_before": BEFORE,
        "letters_after": letters,
        "status": "ok",
        "reason": None,
    }
    return values | given


def question_row(name: str, reason: str, **given: Any) -> dict[str, Any]:
    cleared = {"task_key": None, "cell_key": None, "problem_key": None, "method": None, "letters_after": None}
    return row("-", 0, "", **cleared, key=name, question_id=name, status="skipped", reason=reason) | given


def cells(*rows: dict[str, Any]) -> list[CellCapability]:
    return cell_capabilities(pd.DataFrame(list(rows)), seed=0)


def test_accuracies_and_changes_worked_by_hand() -> None:
    """Steps of p: 3 and 1 of 4 right; of q: 4 of 4. Changes 0, -1/2, +1/4; answers changed 0, 2, 1 of 4."""
    (cell,) = cells(row("p", 0, "ABCA"), row("p", 1, "BACA"), row("q", 0, "ABCD"))
    assert cell.before.value == 0.75
    assert cell.after.value == pytest.approx((3 + 1 + 4) / 12)
    assert (cell.after.numerator, cell.after.denominator, cell.after.num_clusters) == (8, 12, 4)
    assert cell.change.value == pytest.approx((0 - 0.5 + 0.25) / 3)
    assert cell.change.num_clusters == 2
    assert cell.changed.value == pytest.approx((0 + 2 / 4 + 1 / 4) / 3)
    assert cell.worst_change == -0.5
    assert (cell.num_cots, cell.num_steps, cell.num_questions, cell.num_failed) == (2, 3, 4, 0)
    assert cell.after.value - cell.before.value == pytest.approx(cell.change.value)
    for estimate in (cell.before, cell.after, cell.change, cell.changed):
        assert estimate.low is not None
        assert estimate.value is not None
        assert estimate.low <= estimate.value <= (estimate.high or 0.0)


def test_accuracy_is_scikit_learns() -> None:
    (cell,) = cells(row("p", 0, "BACA"))
    assert cell.after.value == accuracy_score(GOLD, list("BACA"))
    assert cell.change.reason == "one problem gives no interval"


def test_where_nothing_changed_there_is_no_false_certainty() -> None:
    (cell,) = cells(row("p", 0, "ABCA"), row("q", 0, "ABCA"))
    assert (cell.change.value, cell.change.low, cell.change.reason) == (0.0, None, NOTHING_CHANGED)
    assert (cell.changed.value, cell.changed.low, cell.changed.high) == (0.0, *wilson(0, 2))


def test_methods_and_rates_are_apart_and_share_the_base_figure() -> None:
    lora = {"cell_key": "lora", "method": "lora", "lora_rank": 8, "lr": 1e-4}
    found = cells(row("p", 0, "ABCD"), row("p", 0, "AAAA", key="l", task_key="l", **lora))
    assert [(cell.method, cell.lora_rank, cell.after.value) for cell in found] == [
        ("ff2", None, 1.0),
        ("lora", 8, 0.25),
    ]
    assert found[0].before == found[1].before


def test_failed_steps_and_questions_left_out_are_counted() -> None:
    failed = row("q", 1, "", status="failed", reason="not finite", letters_after=None)
    long = [question_row(f"long-{n}", "too long") for n in range(2)]
    (cell,) = cells(row("p", 0, "ABCA"), failed, *long, question_row("other", "too long", capability_revision="r2"))
    assert (cell.num_steps, cell.num_failed, cell.num_cots) == (1, 1, 1)
    assert cell.left_out == {"too long": 2}


def test_other_questions_are_another_measurement() -> None:
    found = cells(row("p", 0, "ABCA"), row("p", 0, "ABCD", key="2", capability_revision="r2", capability_set="other"))
    assert [cell.capability_set for cell in found] == ["mmlu", "other"]


def test_a_cell_without_a_measured_step_is_left_out() -> None:
    assert cells(row("p", 0, "", status="failed", letters_after=None)) == []
    assert cell_capabilities(pd.DataFrame([row("p", 0, "ABCA")]).iloc[:0], seed=0) == []
