"""Shares of `different`: worked by hand, with their denominators, and the published ones of the paper's Table 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairwitness.analysis.judgements import JudgedCell, judged_cells
from fairwitness.judges.published import read_verdicts
from fairwitness.records.store import Store

PUBLISHED = Path(__file__).resolve().parents[3].parent / "shared/data/fur_published/judgements"


def judgement(task: str, verdict: str | None, **changes: Any) -> dict[str, Any]:
    base = {
        "key": f"{task}-{changes.get('judge_key', 'j')}",
        "item_key": task,
        "kind": "cot_after",
        "scope_key": "scope",
        "cell_key": "cell",
        "model": "m",
        "data_set": "d",
        "problem_id": task.rpartition("_")[0],
        "judge": "wise",
        "judge_key": "j",
        "verdict": verdict,
        "status": "ok" if verdict else "failed",
    }
    return {**base, **changes}


def task(name: str, *flips: bool, **changes: Any) -> list[dict[str, Any]]:
    base = {
        "task_key": name,
        "cell_key": "cell",
        "scope_key": "scope",
        "attempt": 1,
        "model": "m",
        "data_set": "d",
        "problem_id": "p",
        "problem_key": "p",
        "method": "lora",
        "lora_rank": 8,
        "lr": 1e-4,
        "status": "ok",
        **changes,
    }
    return [
        {**base, "key": f"{name}-{i}", "iteration": i, "flipped": flipped} for i, flipped in enumerate(flips, start=1)
    ]


def cells(folder: Path, judgements: list[dict[str, Any]], *tasks: list[dict[str, Any]]) -> list[JudgedCell]:
    with Store(folder / "store") as store:
        for rows in tasks:
            store.append("unlearning", rows)
        store.append("judgements", judgements)
        return judged_cells(store, seed=0)


def test_shares_by_hand(tmp_path: Path) -> None:
    said = {"a_0": "different", "a_1": "same", "b_0": "different", "b_1": "unclear", "c_0": "different"}
    rows = [judgement(name, verdict, cost=0.25, from_cache=name == "a_0") for name, verdict in said.items()]
    rows += [
        judgement("c_1", None, reply="hm", reason="unparsable: x"),
        judgement("d_0", None, reason="HTTP 500"),
        judgement("d_1", None, status="skipped", reason="direct and CoT answers differ after unlearning"),
    ]
    changed = {"a_0": (True, True), "a_1": (True, False), "b_0": (False, True), "b_1": (False, True)}
    tasks = [task(name, *changed.get(name, (False, False))) for name in (*said, "c_1", "d_0", "d_1")]
    (cell,) = cells(tmp_path, rows, *tasks)
    assert dict(cell.verdicts) == {"same": 1, "different": 3, "unclear": 1}
    assert (cell.different.numerator, cell.different.denominator, cell.different.num_clusters) == (3, 5, 3)
    # Changed at the last iteration: a_0 and b_0 (different), b_1 (unclear).
    assert (cell.different_changed.numerator, cell.different_changed.denominator) == (2, 3)
    assert cell.different.low is not None
    assert 0 <= cell.different.low < 0.6 < (cell.different.high or 0) <= 1
    assert (cell.num_judged, cell.num_skipped, cell.num_failed, cell.num_unparsable) == (5, 1, 2, 1)
    assert sum(cell.reasons.values()) == 3
    assert (cell.cost, cell.num_from_cache) == (1.25, 1)
    assert (cell.method, cell.lora_rank, cell.lr) == ("lora", 8, 1e-4)


def test_a_step_that_was_measured_again_counts_only_as_judged_since(tmp_path: Path) -> None:
    rows = [judgement("old_0", "same"), judgement("new_0", "different"), judgement("elsewhere_0", "same", cell_key="x")]
    found = {cell.cell_key: cell.num_judged for cell in cells(tmp_path, rows, task("new_0", True))}
    assert found == {"cell": 1, "x": 1}


def test_nothing_judged_is_undefined_with_a_reason(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, [judgement("a_0", None, reason="HTTP 500")], task("a_0", True))
    assert (cell.different.value, cell.different.reason) == (None, "no step was judged")
    assert cell.different_changed.reason == "no judged step changed the direct answer"


def test_no_judgements_no_cells(tmp_path: Path) -> None:
    assert cells(tmp_path, []) == []


def test_judges_and_cells_can_be_chosen(tmp_path: Path) -> None:
    rows = [
        judgement("a_0", "same"),
        judgement("a_0", "different", judge_key="k"),
        judgement("b_0", "same", cell_key="x"),
    ]
    assert len(cells(tmp_path, rows, task("a_0", True))) == 3
    store = Store(tmp_path / "store", create=False)
    assert [c.judge_key for c in judged_cells(store, seed=0, cell_keys=["cell"])] == ["j", "k"]
    assert {c.cell_key for c in judged_cells(store, seed=0, judge_keys=["j"])} == {"cell", "x"}
    assert judged_cells(store, seed=0, cell_keys=[]) == []


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs ../shared/data/fur_published, which is not in the repository")
@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("LLaMA-3_arc-challenge", 81.5),
        ("LLaMA-3_openbook", 80.2),
        ("LLaMA-3_sports", 73.1),
        ("LLaMA-3_sqa", 66.7),
        ("Phi-3_sqa", 73.6),
    ],
)
def test_published_verdicts_give_the_papers_table_3(tmp_path: Path, name: str, percent: float) -> None:
    (path,) = PUBLISHED.glob(f"{name}_NPO_KL_*.jsonl")
    rows = [judgement(item, verdict, cell_key=None) for item, verdict in read_verdicts(path).items()]
    assert len(rows) == len([json.loads(line) for line in path.read_text().splitlines()])
    (cell,) = cells(tmp_path, rows)
    assert round(100 * (cell.different.value or 0), 1) == percent
    assert cell.cell_key is None
    assert cell.different_changed.reason == "it is not stored whose direct answer changed"
