"""What two runs both measured counts once, and equal figures have equal intervals wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fairwitness.analysis.baselines import baseline_views
from fairwitness.analysis.panels import build_panels
from fairwitness.analysis.runs import load_run
from fairwitness.fur.finished import IMPORT_JOB
from fairwitness.report.paper.data import PaperData, load_paper
from fairwitness.report.paper.exhibit import Exhibit
from fairwitness.report.paper.followup_tables import table_2
from fairwitness.report.paper.rate_figures import ONE_METHOD, figure_5, figure_6, figure_7, figure_9, figure_10
from fairwitness.report.paper.scatter import TOO_FEW_FOR_P
from fairwitness.report.paper.tables import table_5, table_6
from tests.unit.report.paper.conftest import HIGH, LOW, further_problems
from tests.unit.report.paper.test_paper_baselines import DATA_SET, MODEL, _job, _rows

ONE: dict[str, Any] = {"models": ["own"], "data_sets": ["pets"]}


def correlation(exhibit: Exhibit) -> pd.Series[Any]:
    (place,) = exhibit.frame.index[exhibit.frame["row"] == "correlation"]
    return exhibit.frame.loc[place]


def left_out(exhibit: Exhibit) -> list[str]:
    return [note.partition("rate: ")[2] for note in exhibit.notes if note.startswith("Left out")]


def test_equal_cells_of_two_runs_count_once(make_run: Callable[..., Path], tmp_path: Path) -> None:
    first = make_run(tmp_path, "first", rates=[LOW, HIGH], **ONE)
    second = make_run(tmp_path, "second", code="2", **ONE)
    data = load_paper([first, second])
    found = correlation(figure_7(data))
    assert found["num_cells"] == 3  # the second run's middle rate is in no other
    cells = figure_6(data).frame
    assert list(zip(cells["run"], cells["lr"], strict=True)) == [("first", LOW), ("first", HIGH), ("second", 3e-5)]
    for make in (figure_6, figure_7, figure_9, figure_10):
        assert left_out(make(data)) == ["own on pets (second), 2 rates."]
    assert left_out(figure_7(load_paper([second]))) == []


def test_figure_5_compares_other_methods_only(make_run: Callable[..., Path], tmp_path: Path) -> None:
    def with_other_cells(name: str, **options: Any) -> Path:
        return make_run(tmp_path, name, **ONE, **options)

    full = with_other_cells("full")
    again = with_other_cells("again", rates=[LOW], methods=[("ff2", None), ("lora", 8)], code="2")
    data = load_paper([full, again])
    for entry in data.entries:  # the same CoTs, other cells
        object.__setattr__(entry.panel, "scope_key", "scope")
    exhibit = figure_5(data)
    bars = exhibit.frame[exhibit.frame["row"] == "ff_hard"]
    assert list(zip(bars["run"], bars["method"], strict=True)) == [("full", "ff2"), ("again", "lora")]
    assert left_out(exhibit) == ["own on pets (again), full FF2."]
    twice = PaperData(tuple(entry for entry in data.entries if entry.panel.method == "ff2"))
    assert figure_5(twice).missing == ONE_METHOD


def test_few_cells_have_no_p(make_run: Callable[..., Path], tmp_path: Path, hand_data: PaperData) -> None:
    data = load_paper([make_run(tmp_path, **ONE)])
    exhibit = figure_7(data)
    assert pd.isna(correlation(exhibit)["p_value"])
    assert exhibit.pictures[0].caption.endswith(f", 3 cells, {TOO_FEW_FOR_P}")
    (row,) = (figure_9(data).grid or pytest.fail("no table")).rows
    assert row[2].text == TOO_FEW_FOR_P
    assert 0 < correlation(figure_7(hand_data))["p_value"] < 0.05


@pytest.mark.parametrize(("make", "column"), [(table_5, "direct_accuracy"), (table_6, "steps_per_cot")])
def test_an_import_has_none_of_the_papers_figures_beside_a_part_of_the_problems(
    make: Callable[[PaperData], Exhibit], column: str, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    data = load_paper([make_run(tmp_path, "mine", models=[MODEL], data_sets=[DATA_SET])])
    assert make(data).frame[f"{column}_published"].notna().all()
    data.entries[0].run.info["job"] = IMPORT_JOB
    exhibit = make(data)
    assert exhibit.frame[f"{column}_published"].isna().all()
    assert exhibit.grid is not None
    assert not any(line.startswith("paper") for row in exhibit.grid.rows for cell in row for line in cell.lines)
    assert any(note.startswith("Imported from published files: mine.") for note in exhibit.notes)


def test_equal_figures_have_equal_intervals(make_run: Callable[..., Path], tmp_path: Path) -> None:
    numbers = range(4, 45)
    rows = _rows("add_mistake", "b1")
    rows += [
        {**rows[0], "key": f"b1-{n}", "problem_key": f"problem-{DATA_SET}-{n}", "problem_id": f"p{n}"} for n in numbers
    ]
    tables = {"runs": [_job({"b1": {"kind": "add_mistake"}})], "baselines": rows}
    tables |= further_problems(MODEL, DATA_SET, numbers)
    run_dir = make_run(tmp_path, models=[MODEL], data_sets=[DATA_SET], tables=tables)
    data, run = load_paper([run_dir]), load_run(run_dir)
    panels = build_panels(run)
    cell = panels[0].shown_cell
    assert cell is not None
    assert cell.ff_hard_any.num_clusters == 44
    (view,) = baseline_views(run, panels)
    assert view.summary.ff_hard == cell.ff_hard_any
    (row,) = table_2(data).frame.to_dict("records")
    assert (row["ff_hard_low"], row["ff_hard_high"]) == (cell.ff_hard_any.low, cell.ff_hard_any.high)
    intervals = {
        tuple(correlation(make(data))[["pearson_low", "pearson_high"]]) for make in (figure_7, figure_9, figure_10)
    }
    assert len(intervals) == 1
