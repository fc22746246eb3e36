"""Names of steps lead back to their tasks, also when a task was run again under another key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from fairwitness.analysis.ratings import item_name
from fairwitness.raters.steps import read_groups, steps_by_item
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from tests.unit.report.conftest import cell_key, write_run


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


def test_in_a_search_only_a_rate_measured_on_all_problems_is_taken(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path, num_problems=8)
    sweep = RunDirectory.at(run_dir)
    with Store(run_dir / "store") as store:
        (before,) = [group for group in read_groups(sweep, store) if group.data_set == "organism"]
        (row,) = [row for row in store.read("runs").to_pylist() if row["key"] == "latest"]
        later = row["created_at"] + timedelta(hours=1)
        store.append("runs", [{**row, "key": "search", "job": "lr_search", "created_at": later}])
        trial = {
            "key": "t", "run_key": "search", "cell_key": cell_key("organism", 5e-5), "scope_key": "scope-organism",
            "model": "tiny/m", "data_set": "organism", "method": "ff2", "searcher": "bracket", "trial_index": 0,
            "lr": 5e-5, "min_specificity": 95.0, "decision": "feasible early", "status": "ok",
        }  # fmt: skip
        store.append("trials", [trial])
        (after,) = [group for group in read_groups(sweep, store) if group.data_set == "organism"]
    assert (before.lr, after.lr) == (5e-5, 1e-5)
    assert {step.cell_key for step in after.steps} == {cell_key("organism", 1e-5)}
