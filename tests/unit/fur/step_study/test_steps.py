"""Names of steps lead back to their tasks, also when a task was run again under another key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairwitness.fur.step_study.steps import item_name, steps_by_item
from fairwitness.records.store import Store


def task(key: str, place: str | None, attempt: int, after: float) -> list[dict[str, Any]]:
    row = {
        "key": f"{key}-1", "task_key": key, "place_key": place, "cell_key": "c", "scope_key": "s", "attempt": attempt,
        "iteration": 1, "model": "m", "data_set": "d", "problem_id": "p", "problem_key": "pk", "cot_step_index": 2,
        "method": "ff2", "lr": 1e-5, "base_letter": "A", "base_probs": [0.9, 0.1], "probs": [after, 1 - after],
        "predicted_letter": "A", "flipped": False, "status": "ok",
    }  # fmt: skip
    return [row]


def test_a_step_keeps_its_name_when_its_task_is_run_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append("unlearning", task("first", "place", 1, 0.8))
        name = item_name("place")
        assert steps_by_item(store, {name})[name].ff_soft is not None
        store.append("unlearning", task("second", "place", 2, 0.2))
        (step,) = steps_by_item(store, {name, "other"}).values()
    assert step.task_key == "second"
    assert step.ff_soft is not None
    assert round(step.ff_soft, 9) == 0.7
    assert (step.item, step.cot_step_index) == (name, 2)


def test_a_task_without_a_place_is_named_by_itself(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append("unlearning", task("alone", None, 1, 0.8))
        assert set(steps_by_item(store, {item_name("alone")})) == {item_name("alone")}
        assert steps_by_item(store, set()) == {}
