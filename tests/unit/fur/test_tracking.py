from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwitness.analysis.faithfulness import cell_faithfulness
from fairwitness.fur.sweep import summarise_cells
from fairwitness.records.store import Store
from tests.unit.records.rows import cot_row, failed_row, task_rows, unlearning_row


def cot_of(number: int, *, agree: bool = True) -> dict[str, Any]:
    return cot_row(f"ck{number}", problem_key=f"pk{number}", agree=agree)


def test_a_worked_cell(tmp_path: Path) -> None:
    """Two problems that agree (p0 with two steps, p1 with one), one that does not, and a failed task."""
    rows = [
        unlearning_row("t0", 1, efficacy=0.2, specificity=1.0, probs=[0.7, 0.3]),
        unlearning_row("t0", 2, efficacy=0.4, specificity=0.9, probs=[0.3, 0.7], flipped=True),
        unlearning_row(
            "t1", 1, efficacy=0.6, specificity=0.8, probs=[0.2, 0.8], flipped=True, loss_names=None, losses=None
        ),
        unlearning_row("t1", 2, efficacy=None, specificity=0.7, probs=[0.6, 0.4]),
    ]
    other = {"problem_key": "pk1", "cot_key": "ck1"}
    rows += task_rows("t2", efficacy=1.0, specificity=1.0, probs=[0.75, 0.25], **other)
    rows += task_rows("t3", problem_key="pk2", cot_key="ck2", efficacy=-9.0)
    with Store(tmp_path) as store:
        store.append("unlearning", rows)
        store.append("unlearning", [failed_row("t4")])
        store.append("cots", [cot_of(0), cot_of(1), cot_of(2, agree=False)])
    (cell,) = summarise_cells(store)
    assert cell.params == {"model": "m", "model_revision": "r", "data_set": "d", "method": "ff2", "lr": 1e-4, "seed": 0}
    first, second = cell.metrics_by_iteration[1], cell.metrics_by_iteration[2]
    assert first["efficacy"] == pytest.approx((0.2 + 0.6 + 1.0) / 3)
    assert second["efficacy"] == pytest.approx((0.4 + 1.0) / 2)
    assert (first["loss"], first["loss/npo"], first["loss/kl"]) == (pytest.approx(13.9), pytest.approx(13.9), 0.0)
    assert first["metric/log_ratio"] == -0.5
    assert first["ff_soft"] == pytest.approx((0.05 + 0.55 + 0.0) / 3)
    assert (first["step_flip"], first["ff_hard"]) == (pytest.approx(1 / 3), 0.5)
    assert cell.totals == pytest.approx(
        {
            "num_tasks_ok": 4,
            "num_tasks_skipped": 0,
            "num_tasks_failed": 1,
            "num_problems": 2,
            "efficacy": (0.2 + 0.4 + 0.6 + 1.0 + 1.0) / 5,
            "specificity": (1.0 + 0.9 + 0.8 + 0.7 + 1.0 + 1.0) / 6,
            "ff_hard_any": 0.5,
            "ff_hard_final": 0.5,
            "ff_soft_final": (0.45 + 0.15 + 0.0) / 3,
        }
    )


def test_totals_are_the_reports_figures(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    agree = {f"pk{number}": number % 3 > 0 for number in range(9)}
    with Store(tmp_path) as store:
        for number in range(40):
            problem = int(rng.integers(9))
            names = {"problem_key": f"pk{problem}", "problem_id": f"p{problem}", "cot_key": f"ck{problem}"}
            rows = [unlearning_row(f"t{number}", i, **names, cot_step_index=number, **_draw(rng)) for i in (1, 2, 3)]
            store.append("unlearning", rows)
        store.append("cots", [cot_of(int(key[2:]), agree=value) for key, value in agree.items()])
    (cell,) = summarise_cells(store)
    expected = cell_faithfulness(store.read("unlearning").to_pandas(), agree, rng=rng)
    for name in ("efficacy", "specificity", "ff_hard_any", "ff_hard_final", "ff_soft_final"):
        assert cell.totals[name] == pytest.approx(getattr(expected, name).value), name


def test_cells_come_by_rate_and_can_be_chosen(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for task, lr in (("a", 1e-3), ("b", 2e-5), ("c", 1e-5)):
            store.append("unlearning", task_rows(task, cell_key=f"cell-{task}", lr=lr))
        store.append("unlearning", [failed_row("f") | {"cell_key": "cell-f"}])
        store.append("cots", [cot_row()])
    assert [cell.key for cell in summarise_cells(store)] == ["cell-f", "cell-c", "cell-b", "cell-a"]
    (chosen,) = summarise_cells(store, {"cell_keys": ["cell-b"]})
    assert chosen.metrics_by_iteration[2]["efficacy"] == 0.5
    assert summarise_cells(store)[0].metrics_by_iteration == {}
    assert summarise_cells(store)[0].totals == {"num_tasks_ok": 0, "num_tasks_skipped": 0, "num_tasks_failed": 1}


def test_an_empty_store_has_no_cells(tmp_path: Path) -> None:
    assert summarise_cells(Store(tmp_path)) == []


def _draw(rng: np.random.Generator) -> dict[str, object]:
    probs = [float(value) for value in rng.dirichlet([1.0, 1.0])]
    letter = "AB"[int(np.argmax(probs))]
    values = {"efficacy": float(rng.random()), "specificity": float(rng.integers(15, 21)) / 20}
    return values | {"probs": probs, "predicted_letter": letter, "flipped": letter != "A"}
