"""Tables 1, 5, 6, 8 and 11 of a run whose figures are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fairwitness.analysis.frames import Results
from fairwitness.report.paper.data import PaperData, load_paper
from fairwitness.report.paper.exhibit import NO_RATE, Cell, Exhibit
from fairwitness.report.paper.tables import table_1, table_5, table_6, table_8, table_11
from tests.unit.report.paper.conftest import HIGH, LOW, MIDDLE, cell_key, scope_key


def line(frame: pd.DataFrame, **wanted: Any) -> pd.Series[Any]:
    """The one row of a frame with these values."""
    found = frame
    for name, value in wanted.items():
        found = found[found[name] == value]
    assert len(found) == 1, wanted
    return found.iloc[0]


def shown(exhibit: Exhibit, first: str) -> list[Cell]:
    """The cells of the line whose first cell this is."""
    assert exhibit.grid is not None
    (found,) = [row for row in exhibit.grid.rows if row[0].text == first]
    return list(found[1:])


def test_table_1_at_the_chosen_rate(hand_data: PaperData) -> None:
    exhibit = table_1(hand_data)
    own = line(exhibit.frame, model="own", data_set="pets")
    assert (own["lr"], own["feasible"]) == (MIDDLE, True)
    assert (own["efficacy"], own["specificity"]) == (pytest.approx(0.5), pytest.approx(0.95))
    # Three problems of two steps of two iterations.
    assert (own["efficacy_denominator"], own["efficacy_num_problems"]) == (12, 3)
    assert pd.isna(own["capability_after"])
    assert pd.isna(own["efficacy_published"])
    base, efficacy, specificity, general, *rest = shown(exhibit, "own")
    assert (base.text, efficacy.text, specificity.text, general.text) == ("–", "50.0", "95.0", "–")
    assert efficacy.lines == ("50.0–50.0", "n = 3")
    assert len(rest) == 3
    assert any("fairwitness capability" in note for note in exhibit.notes)


def test_the_papers_own_figures_stand_beside_equal_names_only(hand_data: PaperData) -> None:
    base, efficacy, specificity, general, other, *_ = shown(table_1(hand_data), "LLaMA-8B")
    assert [cell.lines[-1] for cell in (base, efficacy, specificity, general)] == [
        *("paper 63.9", "paper 43.2", "paper 98.3", "paper 63.8")
    ]
    assert other.lines == ("50.0–50.0", "n = 3")  # pets is no data set of the paper
    assert not any("paper" in one for cell in shown(table_1(hand_data), "own") for one in cell.lines)


def _capability(data_set: str, problem: int, after: int, lr: float = MIDDLE) -> dict[str, Any]:
    cell = cell_key("own", data_set, lr)
    return {
        "key": f"capability-{cell}-{problem}",
        "task_key": f"{cell}-{problem}-0",
        "cell_key": cell,
        "scope_key": scope_key("own", data_set),
        "model": "own",
        "data_set": data_set,
        "problem_id": f"p{problem}",
        "method": "ff2",
        "capability_set": "mmlu",
        "capability_revision": "c1",
        "problem_key": f"p{problem}",
        "num_questions": 40,
        "gold_letters": ["A"] * 40,
        "letters_before": _right(24),
        "letters_after": _right(after),
        "num_correct_before": 24,
        "num_correct_after": after,
        "status": "ok",
    }


def _right(number: int) -> list[str]:
    return ["A"] * number + ["B"] * (40 - number)


def test_table_1_with_general_capability(make_run: Callable[..., Path], tmp_path: Path) -> None:
    failed = {**_capability("pets", 2, 0), "status": "failed", "reason": "out of memory"}
    other_rate = _capability("pets", 0, 1, lr=HIGH)
    rows = [_capability("pets", 0, 24), _capability("pets", 1, 20), failed, other_rate]
    run_dir = make_run(tmp_path, models=["own"], tables={"capability": rows})
    exhibit = table_1(load_paper([run_dir]))
    pets = line(exhibit.frame, data_set="pets")
    assert (pets["capability_before"], pets["capability_before_denominator"]) == (0.6, 40)
    assert (pets["capability_after"], pets["capability_after_numerator"]) == (0.55, 44)
    assert (pets["capability_set"], pets["num_capability_steps"], pets["num_capability_failed"]) == ("mmlu", 2, 1)
    (same,) = [one for one in Results(run_dir).capabilities if one.cell_key == cell_key("own", "pets", MIDDLE)]
    for name, one in (("before", same.before), ("after", same.after)):  # as in the run's own report
        assert (pets[f"capability_{name}_low"], pets[f"capability_{name}_high"]) == (one.low, one.high)
    assert pd.isna(line(exhibit.frame, data_set="arc_challenge")["capability_after"])
    assert shown(exhibit, "own")[0].text == "60.0"
    assert not any("fairwitness capability" in note for note in exhibit.notes)


def test_table_5_without_and_with_a_cot(hand_data: PaperData) -> None:
    exhibit = table_5(hand_data)
    own = line(exhibit.frame, model="own", data_set="pets")
    assert (own["direct_accuracy_numerator"], own["direct_accuracy_denominator"]) == (2, 4)
    assert (own["cot_accuracy_numerator"], own["cot_accuracy_denominator"]) == (3, 4)
    assert [cell.text for cell in shown(exhibit, "own")] == ["0.50", "0.75", "0.50", "0.75"]
    direct, after, *_ = shown(exhibit, "LLaMA-8B")
    assert (direct.lines[-1], after.lines[-1]) == ("paper 0.82", "paper 0.84")


def test_table_6_counts_the_steps_of_every_cot(hand_data: PaperData) -> None:
    exhibit = table_6(hand_data)
    own = line(exhibit.frame, model="own", data_set="pets")
    assert (own["steps_per_cot"], own["steps_per_cot_num_problems"]) == (2.25, 4)
    assert [cell.text for cell in shown(exhibit, "LLaMA-8B")] == ["2.25", "2.25"]
    assert shown(exhibit, "LLaMA-8B")[0].lines[-1] == "paper 4.36"


def test_table_8_has_a_line_per_rate_and_marks_the_chosen_one(hand_data: PaperData) -> None:
    exhibit = table_8(hand_data)
    assert len(exhibit.frame) == 12
    assert sorted(exhibit.frame[exhibit.frame["chosen"]]["lr"]) == [MIDDLE] * 4
    for lr, numerator in ((LOW, 0), (MIDDLE, 1), (HIGH, 2)):
        row = line(exhibit.frame, model="own", data_set="pets", lr=lr)
        assert (row["ff_hard_any_numerator"], row["ff_hard_any_denominator"]) == (numerator, 3)
    assert exhibit.grid is not None
    rates = [(row[0].text, row[1].text) for row in exhibit.grid.rows]
    assert rates == [("LLaMA-8B", "1e-5"), ("", "3e-5"), ("", "1e-4"), ("own", "1e-5"), ("", "3e-5"), ("", "1e-4")]
    marks = [[cell.mark for cell in row[2:]] for row in exhibit.grid.rows]
    assert marks == [["chosen" if number % 3 == 1 else ""] * 6 for number in range(6)]
    low = exhibit.grid.rows[0][2:5]
    assert [cell.lines[-1] for cell in low] == ["paper 35.2", "paper 97.6", "paper 46.7"]


def test_table_11_counts_steps_of_agreeing_problems(hand_data: PaperData) -> None:
    exhibit = table_11(hand_data)
    own = line(exhibit.frame, model="own", data_set="pets")
    assert (own["step_flip_any_numerator"], own["step_flip_any_denominator"]) == (1, 6)
    assert own["step_flip_final_numerator"] == 0
    arc, pets = shown(exhibit, "LLaMA-8B")
    assert (arc.text, arc.lines[1:]) == ("16.7", ("n = 3", "6 steps", "paper 19.76"))
    assert pets.lines[1:] == ("n = 3", "6 steps")


def test_where_no_rate_is_feasible_the_nearest_miss_is_marked(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = load_paper([make_run(tmp_path, models=["own"], data_sets=["pets"], rates=[HIGH])])
    for exhibit in (table_1(data), table_11(data)):
        assert any(note.startswith("†") for note in exhibit.notes)
        assert any(cell.text.endswith(" †") for cell in shown(exhibit, "own"))
        assert not exhibit.frame["feasible"].any()
    assert any("nearest miss 1e-4 with specificity 50.0" in note for note in table_8(data).notes)


def test_a_run_without_any_rate_says_so(make_run: Callable[..., Path], tmp_path: Path) -> None:
    data = load_paper([make_run(tmp_path, rates=[])])
    assert [make(data).missing for make in (table_1, table_8, table_11)] == [NO_RATE] * 3
    assert table_5(data).missing is None
    assert len(table_6(data).frame) == 4


def test_methods_and_runs_have_lines_of_their_own(make_run: Callable[..., Path], tmp_path: Path) -> None:
    methods = [("ff2", None), ("lora", 8)]
    first = make_run(tmp_path, "first", models=["own"], data_sets=["pets"], methods=methods)
    second = make_run(tmp_path, "second", models=["own"], data_sets=["pets"], code="2")
    data = load_paper([first, second])
    assert data.labels == ["own (first)", "own, LoRA, rank 8", "own (second)"]
    assert [row[0].text for row in (table_5(data).grid or pytest.fail("no table")).rows] == [
        *("own (first)", "own (second)")
    ]
    assert len(table_1(data).frame) == 3
