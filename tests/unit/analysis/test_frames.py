"""The frames of a run: every column is described, and the report's tables are the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fairwitness.analysis.columns import COLUMNS
from fairwitness.analysis.faithfulness import rates_of
from fairwitness.analysis.frames import FRAMES, Results
from fairwitness.analysis.identity import CellId, PanelId, cell_id, panel_id
from fairwitness.errors import StoreError
from fairwitness.records.store import Store
from fairwitness.report.build import build_report
from fairwitness.report.drafts.page import build_draft_report
from fairwitness.report.files import as_csv
from fairwitness_schemas import TABLES
from tests.helpers.draft_runs import write_draft_run
from tests.unit.analysis.test_capability_results import row as capability_row
from tests.unit.report import test_baselines as baselines
from tests.unit.report.conftest import NUM_PROBLEMS, cell_key, write_run
from tests.unit.report.test_methods import with_ranks

CELL = cell_key("organism", 5e-5)
OF_DRAFTS = ("drafts", "continuations", "draft_rates")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A sweep of several methods with rows of every job that follows one."""
    folder = with_ranks(write_run(tmp_path_factory.mktemp("runs")))
    names = {"model": "tiny/m", "data_set": "organism", "scope_key": "scope-organism", "problem_id": "organism-000"}
    cell: dict[str, Any] = names | {"cell_key": CELL, "status": "ok"}
    with Store(folder / "store") as store:
        store.append("runs", [baselines._job("second", 2, ["mistake", "shap"], baselines.SETTINGS, "c0de1")])
        store.append("baselines", [row for index in range(NUM_PROBLEMS) for row in baselines._rows(index)])
        known = TABLES["capability"].schema.names
        store.append("capability", [{k: v for k, v in capability_row("p", 0, "ABCA", **cell).items() if k in known}])
        task = next(row["task_key"] for row in store.read("unlearning").to_pylist() if row["cell_key"] == CELL)
        verdict = {"key": "j", "item_key": task, "kind": "cot_after", "judge": "wise", "judge_key": "w"}
        store.append("judgements", [cell | verdict | {"verdict": "same", "reply": "same", "cost": 0.0}])
        rating = {"key": "r", "item_key": "t", "item": "bcdfghjkmn", "rater": "ann", "rating": 4, "ff_soft": 0.7}
        rating |= {"bin": "high", "cot_step_index": 0, "task_key": "t"}
        rating = {k: v for k, v in (cell | rating).items() if k in TABLES["ratings"].schema.names}
        store.append("ratings", [rating])
        trial = {"key": "t", "run_key": "several", "method": "ff2", "searcher": "grid", "trial_index": 0, "lr": 5e-5}
        trial |= {"min_specificity": 95.0, "decision": "complete", "is_selected": True}
        store.append("trials", [{k: v for k, v in (cell | trial).items() if k in TABLES["trials"].schema.names}])
    return Results(folder)


@pytest.fixture(scope="module")
def of_drafts(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(write_draft_run(tmp_path_factory.mktemp("drafts")))


@pytest.mark.parametrize("name", FRAMES)
def test_every_column_is_described_and_no_other(name: str, full: Results, of_drafts: Results) -> None:
    assert set(COLUMNS) == set(FRAMES)
    frame = FRAMES[name](of_drafts if name in OF_DRAFTS else full)
    assert len(frame)
    assert sorted(frame.columns) == sorted(COLUMNS[name])
    assert all(text and "\n" not in text for text in COLUMNS[name].values())
    other = FRAMES[name](full if name in OF_DRAFTS else of_drafts)
    assert name == "runs" or other.empty
    assert sorted(other.columns) == sorted(COLUMNS[name])


def test_the_reports_tables_are_the_frames(full: Results, of_drafts: Results) -> None:
    files = dict(build_report(full.path).csv)
    with_truth = pd.read_csv(files.pop("steps"))
    assert list(with_truth.columns) == [*COLUMNS["steps"], "truth"]
    assert with_truth["ff_soft_final"].sum() == pytest.approx(FRAMES["steps"](full)["ff_soft_final"].sum())
    del files["separation"]
    names = {"summary", "rates", "problems", "skipped_failed", "overlap", "baselines", "capability", "judgements"}
    assert set(files) == {*names, "step_study"}
    for name, path in files.items():
        assert path.read_text(encoding="utf-8") == as_csv(FRAMES[name](full)), name
    found = build_draft_report(of_drafts.path).csv
    assert found["drafts"].read_text(encoding="utf-8") == as_csv(FRAMES["drafts"](of_drafts))
    assert found["items"].read_text(encoding="utf-8") == as_csv(FRAMES["continuations"](of_drafts))
    rates = FRAMES["draft_rates"](of_drafts)
    reliance = rates[rates["measure"] == "reliance"].reset_index(drop=True)
    table = pd.read_csv(found["table_3"])
    assert reliance["value"].tolist() == pytest.approx(table["value"].tolist(), nan_ok=True)
    assert len(rates.drop_duplicates(list(COLUMNS["draft_rates"])[:9])) == len(rates)


def test_columns_have_types_to_compute_with(full: Results) -> None:
    steps, problems = FRAMES["steps"](full), FRAMES["problems"](full)
    assert steps["lora_rank"].dtype == problems["lora_rank"].dtype == "Int64"
    assert set(problems["lora_rank"].dropna()) == {8, 128}
    assert steps["flipped_any"].dtype == "boolean"
    assert steps[["lr", "ff_soft_final", "efficacy"]].dtypes.eq("float64").all()
    assert problems["counted"].dtype == bool


def test_a_folder_without_a_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        FRAMES["rates"](Results(tmp_path / "none"))


def test_what_names_a_cell() -> None:
    row = {"model": "m", "data_set": "d", "method": "lora", "lora_rank": 8.0, "lr": 1e-4}
    assert cell_id(row) == CellId("m", "d", "lora", 8, 1e-4)
    assert (panel_id(row).method_name, type(panel_id(row).lora_rank)) == ("LoRA, rank 8", int)
    assert cell_id(row).columns() == {**row, "lora_rank": 8}
    full = cell_id(row | {"method": "ff2", "lora_rank": float("nan"), "lr": float("nan")})
    assert full.columns() == {"model": "m", "data_set": "d", "method": "ff2", "lora_rank": None, "lr": None}
    unknown = panel_id(row | {"method": None, "lora_rank": None})
    assert unknown == PanelId("m", "d", "", None)
    ordered = [CellId("m", "d", "ff2", None, 2e-5), CellId("m", "d", "ff2", None, 1e-4), cell_id(row)]
    assert sorted([ordered[2], *ordered[:2]], key=lambda cell: cell.order) == ordered
    assert full.order < ordered[0].order


def test_a_cell_shows_the_same_wherever_its_rate_is_chosen(full: Results) -> None:
    """The report, and a job that opens the sweep, agree in choice and intervals; they depend on the seed."""
    panel = next(panel for panel in full.panels if (panel.data_set, panel.method) == ("organism", "ff2"))
    rows = full.run.unlearning
    own = rows[(rows["scope_key"] == panel.scope_key) & (rows["method"] == "ff2")]
    agree = dict(zip(panel.cots["problem_key"], panel.cots["agree"], strict=True))
    found = rates_of(own.sample(frac=1, random_state=0), agree, {}, seed=7)
    assert found.cells == panel.cells
    assert found.choice == panel.choice
    assert [cell.lr for cell in found.cells] == sorted(cell.lr for cell in found.cells)
    again = rates_of(own, agree, {}, seed=8)
    assert [cell.efficacy.value for cell in again.cells] == [cell.efficacy.value for cell in found.cells]
    assert [cell.efficacy.low for cell in again.cells] != [cell.efficacy.low for cell in found.cells]
    early = rates_of(own, agree, {CELL: "feasible early"}, seed=7)
    assert early.choice != found.choice
