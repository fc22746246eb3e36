"""The page's section on judgements: there when there are any, with all counts, and escaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fairwitness.analysis.judgements import JudgedCell
from fairwitness.records.store import Store
from fairwitness.report.build import build_report
from fairwitness.report.followups import caution, sentence
from fairwitness.stats.bootstrap import Estimate, undefined
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


def cell_with(**verdicts: int) -> JudgedCell:
    number = sum(verdicts.values())
    share = Estimate(verdicts["different"] / number, None, None, verdicts["different"], number, 3, "few")
    none = undefined("no step changed")
    return JudgedCell(
        "m", "d", "ff2", None, None, 3e-2, "rules", "k", verdicts, share, none, 0, 0, 0, {}, None, None, 0, 0.0
    )


def test_mostly_unclear_verdicts_are_said_and_warned_of() -> None:
    cell = cell_with(same=1, different=2, unclear=27)
    assert (
        "argues for another answer 6.7% (2/30, no interval), 2 of the 3 with a clear verdict, "
        "and is unclear in 90.0% (27/30);" in sentence(cell)
    )
    assert str(caution(cell)).startswith("m on d at rate 3e-2, judge rules: 27 of 30 unclear: this judge can read few")
    half = cell_with(same=1, different=1, unclear=2)
    assert caution(half) is None
    assert "unclear in 50.0% (2/4)" in sentence(half)
    assert "no interval); where" in sentence(cell_with(same=1, different=1, unclear=0))
    assert "clear verdict" not in sentence(cell_with(same=0, different=0, unclear=2))


def _unclear(row: dict[str, Any]) -> dict[str, Any]:
    key = str(row["key"]).replace("wise", "vague")
    return row | {"key": key, "judge": "vague", "judge_key": "vague", "verdict": "unclear"}


def test_the_report_warns_of_mostly_unclear_verdicts(judged: Path) -> None:
    assert not [line for line in build_report(judged).cautions if "unclear" in line]
    with Store(judged / "store") as store:
        rows = store.read("judgements").to_pylist()
        store.append("judgements", [_unclear(row) for row in rows if row["judge"] == "wise"])
    paths = build_report(judged)
    (line,) = [line for line in paths.cautions if "unclear" in line]
    assert "judge vague: 9 of 9 unclear" in line
    assert line in paths.html.read_text(encoding="utf-8")


def test_without_judgements_there_is_no_section(run_dir: Path, tmp_path: Path, make_run: Callable[..., Path]) -> None:
    paths = build_report(make_run(tmp_path))
    assert 'id="judgements"' not in paths.html.read_text(encoding="utf-8")
    assert "judgements" not in paths.csv


def test_the_same_store_gives_the_same_page(judged: Path) -> None:
    first = build_report(judged).html.read_bytes()
    assert build_report(judged).html.read_bytes() == first
