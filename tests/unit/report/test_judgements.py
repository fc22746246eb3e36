"""The page's section on judgements: there when there are any, with all counts, and escaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fairwitness.records.store import Store
from fairwitness.report.build import build_report
from tests.unit.report.conftest import HOSTILE, cell_key

CELL = cell_key("organism", 5e-5)


@pytest.fixture
def judged(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    run_dir = make_run(tmp_path)
    with Store(run_dir / "store") as store:
        rows = store.read("unlearning").to_pandas()
        tasks = rows[(rows["cell_key"] == CELL) & (rows["status"] == "ok")].drop_duplicates("task_key")
        for judge in ("wise", f"other {HOSTILE}"):
            store.append(
                "judgements",
                [
                    {
                        "key": f"{judge}-{number}",
                        "item_key": row["task_key"],
                        "kind": "cot_after",
                        "scope_key": row["scope_key"],
                        "cell_key": CELL,
                        "model": row["model"],
                        "data_set": row["data_set"],
                        "problem_id": row["problem_id"],
                        "judge": judge,
                        "judge_key": judge,
                        "verdict": ("same", "different", "unclear", None)[number % 4],
                        "reply": f"reply {HOSTILE}",
                        "cost": 0.5,
                        "status": "failed" if number % 4 == 3 else "ok",
                        "reason": f"unparsable: {HOSTILE}" if number % 4 == 3 else None,
                    }
                    for number, row in enumerate(tasks.head(12).to_dict("records"))
                ],
            )
    return run_dir


def test_the_section_shows_counts_and_is_escaped(judged: Path) -> None:
    paths = build_report(judged)
    page = paths.html.read_text(encoding="utf-8")
    assert '<h2 id="judgements">' in page
    assert '<a href="#judgements">' in page
    assert "3 / 3 / 3" in page
    assert "3 × unparsable" in page
    assert "Agreement between judges" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    table = pd.read_csv(paths.csv["judgements"])
    assert list(table["num_judged"]) == [9, 9]
    assert list(table["num_unparsable"]) == [3, 3]
    assert list(table["different_numerator"]) == [3, 3]
    assert list(table["cost"]) == [6.0, 6.0]


def test_without_judgements_there_is_no_section(run_dir: Path, tmp_path: Path, make_run: Callable[..., Path]) -> None:
    paths = build_report(make_run(tmp_path))
    assert 'id="judgements"' not in paths.html.read_text(encoding="utf-8")
    assert "judgements" not in paths.csv


def test_the_same_store_gives_the_same_page(judged: Path) -> None:
    first = build_report(judged).html.read_bytes()
    assert build_report(judged).html.read_bytes() == first
