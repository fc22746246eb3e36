"""The baselines in the report: one line each beside ff-hard, in the page, in CSV and in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fairwitness.analysis.baselines import _shown, baseline_views
from fairwitness.analysis.panels import build_panels
from fairwitness.analysis.runs import load_run
from fairwitness.records.store import Store
from fairwitness.report.build import build_report
from fairwitness.report.followups import baseline_lines
from tests.unit.report.conftest import HOSTILE, NUM_PROBLEMS, STARTED

SETTINGS = [
    {"kind": "add_mistake", "rest": "own", "texts": {"kind": "file", "path": "x"}},
    {"kind": "cc_shap", "max_evaluations": 500},
]


@pytest.fixture
def run_dir(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    folder = make_run(tmp_path)
    with Store(folder / "store") as store:
        store.append("runs", [_job("first", 1, ["old"], [{"kind": "filler_tokens"}], "c0de0")])
        store.append("runs", [_job("second", 2, ["mistake", "shap"], SETTINGS, "c0de1")])
        store.append("baselines", [row for index in range(NUM_PROBLEMS) for row in _rows(index)])
    return folder


def _job(key: str, hours: int, keys: list[str], baselines: list[dict[str, Any]], code: str) -> dict[str, Any]:
    return {
        "key": key,
        "name": "demo",
        "job": "fur_baselines",
        "is_followup": True,
        "created_at": STARTED + timedelta(hours=hours),
        "config_json": json.dumps({"run": "results/demo", "baselines": baselines}),
        "code_revision": code,
        "cell_keys": keys,
        "status": "done",
    }


def _rows(index: int) -> list[dict[str, Any]]:
    base = {
        "scope_key": "scope-organism",
        "cot_key": f"cot-organism-{index}",
        "model": "tiny/m",
        "data_set": "organism",
        "problem_id": f"organism-{index:03d}",
        "problem_key": f"problem-organism-{index}",
    }
    mistake = {"baseline": "add_mistake", "baseline_key": "mistake", "source": f"{HOSTILE}:{index + 1}"}
    mistakes = [
        {**base, **mistake, "key": f"m{index}-0", "cot_step_index": 0, "flipped": index % 3 == 0, "status": "ok"},
        {**base, **mistake, "key": f"m{index}-1", "cot_step_index": 1, "status": "skipped", "reason": HOSTILE},
    ]
    shap = {"baseline": "cc_shap", "baseline_key": "shap", "key": f"s{index}", "status": "ok"}
    old = {"baseline": "filler_tokens", "baseline_key": "old", "key": f"o{index}", "status": "ok", "flipped": True}
    score = None if index == 0 else 0.1 * index
    return [*mistakes, {**base, **shap, "score": score}, {**base, **old}]


def test_table_has_a_line_per_baseline_of_the_latest_code(run_dir: Path) -> None:
    paths = build_report(run_dir)
    table = pd.read_csv(paths.csv["baselines"])
    assert table["baseline"].tolist() == ["add_mistake", "cc_shap"]
    mistakes, shap = (row for _, row in table.iterrows())
    problems = pd.read_csv(paths.csv["problems"])
    at_rate = problems[(problems["data_set"] == "organism") & (problems["lr"] == mistakes["lr"]) & problems["counted"]]
    assert mistakes["changed_denominator"] == mistakes["ff_hard_denominator"] == len(at_rate)
    assert mistakes["ff_hard_numerator"] == at_rate["ff_hard_any"].sum()
    assert mistakes["changed_numerator"] == sum(int(name[-3:]) % 3 == 0 for name in at_rate["problem_id"])
    assert (mistakes["settings"], mistakes["num_skipped"]) == ("rest: own", NUM_PROBLEMS)
    assert mistakes["sources"] == HOSTILE
    assert shap["score_undefined_numerator"] == int("organism-000" in set(at_rate["problem_id"]))
    assert pd.isna(shap["changed"])


def test_page_shows_the_table_and_escapes_what_it_shows(run_dir: Path) -> None:
    page = build_report(run_dir).html.read_text(encoding="utf-8")
    assert '<h2 id="baselines">' in page
    assert '<a href="#baselines">' in page
    assert "add mistake" in page
    assert "CC-SHAP" in page
    assert "cc shap" not in page
    assert page.count("Problems not counted") == 1
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_page_without_baselines_has_no_section(make_run: Callable[..., Path], tmp_path: Path) -> None:
    paths = build_report(make_run(tmp_path))
    assert "baselines" not in paths.csv
    assert "#baselines" not in paths.html.read_text(encoding="utf-8")


def test_lines_say_the_same_as_the_table(run_dir: Path) -> None:
    run = load_run(run_dir)
    mistakes, shap = baseline_views(run, build_panels(run))
    first, second = baseline_lines(run_dir)
    changed = mistakes.summary.changed
    assert changed.value is not None
    assert first.startswith(
        f"tiny/m on organism, add mistake (rest: own): answer changed in {100 * changed.value:.1f}%"
    )
    assert first.endswith(f"{int(mistakes.summary.ff_hard.denominator)} problems")
    assert shap.summary.score.value is not None
    assert f"mean score {shap.summary.score.value:.3f}" in second


def test_a_setting_of_white_space_is_quoted() -> None:
    assert _shown({"kind": "filler_tokens", "text": " ...", "max_evaluations": 5}) == 'text: " ...", max evaluations: 5'


def test_equal_problems_have_equal_intervals_of_ff_hard(run_dir: Path) -> None:
    run = load_run(run_dir)
    mistakes, shap = baseline_views(run, build_panels(run))
    assert mistakes.summary.ff_hard == shap.summary.ff_hard
