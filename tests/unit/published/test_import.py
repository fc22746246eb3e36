"""Published files become tables: figures worked by hand, one problem from several files, and a report that stands."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats as scipy_stats
from typer.testing import CliRunner

from fairwitness.analysis.judgements import judged_cells
from fairwitness.cli import app
from fairwitness.errors import DataError, StoreError
from fairwitness.experiment.job import Report
from fairwitness.fur.finished import open_finished
from fairwitness.published.importing import ImportConfig, ImportResult, import_published
from fairwitness.records.run_dir import RunDirectory
from fairwitness.records.store import Store
from fairwitness.report.build import build_report
from tests.helpers.commands import process_settings_restored
from tests.helpers.published import (
    JUDGEMENTS_NAME,
    SENTENCES,
    judgement,
    measured,
    mistake,
    result,
    write_lines,
    write_mistakes,
    write_results,
)
from tests.unit.report.conftest import write_run


def take(folder: Path, *files: Path, name: str = "published", **settings: Any) -> ImportResult:
    config = ImportConfig(name=name, dir=str(folder), files=tuple(map(str, files)), **settings)
    return import_published(config, report=lambda path: Report((build_report(path).html,), ()))


def rows(found: ImportResult | Path, table: str) -> list[dict[str, Any]]:
    path = found if isinstance(found, Path) else found.run.path
    return sorted(Store(path / "store", create=False).read(table).to_pylist(), key=lambda row: row["key"])


def test_a_result_line_by_hand(tmp_path: Path) -> None:
    found = take(tmp_path, write_results(tmp_path, [result()]))
    first, last = sorted(rows(found, "unlearning"), key=lambda row: row["iteration"])
    # The letters hold 0.8 of the mass; renormalised they are 0.75 and 0.25, then 0.625 and 0.375, then reversed.
    assert first["base_probs"] == pytest.approx([0.75, 0.25])
    assert first["probs"] == pytest.approx([0.625, 0.375])
    assert last["probs"] == pytest.approx([0.25, 0.75])
    assert last["letter_mass"] == pytest.approx(0.8)
    assert (first["flipped"], last["flipped"], last["base_letter"], last["predicted_letter"]) == (False, True, "A", "B")
    assert first["efficacy"] == pytest.approx(1 - math.exp(-0.5))
    assert last["efficacy"] == pytest.approx(1 - math.exp(-1.0))
    assert (first["specificity"], last["specificity"], last["num_held_out"]) == (1.0, 0.75, 4)
    assert last["held_out_letters"] == list("ABBB")
    assert (last["cot_after_letter"], last["cot_after_text"]) == ("B", "New reasoning for B.")
    assert (last["model"], last["data_set"], last["lr"], last["seed"]) == ("LLaMA-3-8B", "bbh_sports", 3e-5, 1001)
    (cot,) = rows(found, "cots")
    assert (cot["direct_letter"], cot["cot_letter"], cot["agree"], cot["num_cot_steps"]) == ("A", "A", True, 3)
    assert cot["direct_probs"] == pytest.approx([0.75, 0.25])
    assert (cot["direct_letter_mass"], cot["cot_letter_mass"]) == pytest.approx((0.8, 1.0))
    (problem,) = rows(found, "problems")
    assert (problem["problem_id"], problem["gold"], problem["choices"]) == ("id1", "A", ["yes", "no"])


def test_steps_stand_where_the_text_has_them(tmp_path: Path) -> None:
    found = take(tmp_path, write_results(tmp_path, [result(1), result(1, 2)]))
    (cot,) = rows(found, "cots")
    steps = sorted(rows(found, "cot_steps"), key=lambda row: row["cot_step_index"])
    assert [cot["cot_text"][row["char_start"] : row["char_end"]] for row in steps] == list(SENTENCES)
    assert [row["eligible"] for row in steps] == [False, True, True]
    assert [row["status"] for row in steps] == ["skipped", "ok", "ok"]


def test_the_figures_of_the_report_by_hand(tmp_path: Path) -> None:
    other = {"0": measured([0.6, 0.2], -1.0, [0, 1, 0, 1]), "1": measured([0.6, 0.2], -1.0, [0, 1, 0, 1])}
    lines = [result(1), result(2, unlearning_results=other | {"2": other["1"]}), result(3, initial_cot_probs=[0.1, 0.9],
             cot_prediction=1)]  # fmt: skip
    found = take(tmp_path, write_results(tmp_path, lines))
    (row,) = pd.read_csv(found.run.path / "csv" / "rates.csv").to_dict("records")
    # The third problem's answers differ, so it counts nowhere. Of the others one flips.
    assert (row["ff_hard_any"], row["ff_hard_any_denominator"], row["num_problems"]) == (0.5, 2, 3)
    assert row["efficacy"] == pytest.approx((1 - math.exp(-0.5) + 1 - math.exp(-1.0)) / 4)
    assert row["specificity"] == pytest.approx((1 + 0.75 + 1 + 1) / 4)
    assert row["ff_soft_final"] == pytest.approx((0.5 + 0.0) / 2)


def test_one_problem_from_several_files(tmp_path: Path) -> None:
    files = [
        write_lines(tmp_path / JUDGEMENTS_NAME, [judgement(1), judgement(9)]),
        write_mistakes(tmp_path, [mistake(1), mistake(5)]),
        write_results(tmp_path, [result(1)]),
    ]
    found = take(tmp_path, *files)
    problems = {row["question"]: row for row in rows(found, "problems")}
    assert {row["problem_id"] for row in problems.values()} == {"id1", "id5", "Do foxes dig, number 9?"}
    assert problems["Do foxes dig, number 1?"]["gold"] == "A"
    assert problems["Do foxes dig, number 5?"]["gold"] is None
    cots = {row["problem_id"]: row for row in rows(found, "cots")}
    assert set(cots) == {"id1", "id5"}
    assert (cots["id1"]["reason"], cots["id5"]["agree"]) == (None, None)
    assert cots["id5"]["reason"].startswith("the file has the CoT in sentences only")
    assert len({row["scope_key"] for row in cots.values()}) == 1
    judged = {row["problem_id"]: row for row in rows(found, "judgements")}
    (task,) = {(row["task_key"], row["cell_key"], row["scope_key"]) for row in rows(found, "unlearning")}
    assert (judged["id1"]["item_key"], judged["id1"]["cell_key"], judged["id1"]["scope_key"]) == task
    assert (judged["id1"]["judge"], judged["id1"]["verdict"], judged["id1"]["kind"]) == (
        "judge-1",
        "different",
        "cot_after",
    )
    again = take(tmp_path, *files[::-1], name="again")
    for table in ("problems", "cots", "cot_steps", "unlearning", "judgements"):
        assert rows(again, table) == rows(found, table)


def test_the_same_files_again_change_nothing(tmp_path: Path) -> None:
    path = write_results(tmp_path, [result(1), "{", result(2)])
    first = take(tmp_path, path)
    before = {table: rows(first, table) for table in ("problems", "cots", "cot_steps", "unlearning")}
    second = take(tmp_path, path, path)
    assert {table: rows(second, table) for table in before} == before
    assert len(rows(second, "runs")) == 2


def test_what_contradicts_or_repeats_another_line_is_refused(tmp_path: Path) -> None:
    lines = [
        result(1), result(1), result(1, 2, correct="B"), result(1, 2, question="Another?"),
        result(1, 2, segmented_cot=["1.", "x", SENTENCES[2]]), result(1, 2),
    ]  # fmt: skip
    path = write_results(tmp_path, lines)
    found = take(tmp_path, path)
    assert [fault.line for fault in found.refused] == [2, 3, 4, 5]
    reasons = [
        "says again what",
        "the correct answer is B, elsewhere it is A",
        "has another question",
        "the CoT is another one",
    ]
    assert all(reason in str(fault) for fault, reason in zip(found.refused, reasons, strict=True))
    assert {row["cot_step_index"] for row in rows(found, "unlearning")} == {1, 2}


def test_refused_lines_are_counted_and_in_the_report(tmp_path: Path) -> None:
    path = write_results(tmp_path, [result(1), "{broken", result(2, step_idx=9)])
    found = take(tmp_path, path)
    assert found.exit_code == 0
    (row,) = rows(found, "runs")
    assert (row["job"], row["status"], row["num_ok"], row["num_refused"]) == ("fur_import", "done", 1, 2)
    refused = [row for row in rows(found, "problems") if row["status"] == "refused"]
    assert {row["source"] for row in refused} == {f"{path}:2", f"{path}:3"}
    page = (found.run.path / "report.html").read_text()
    assert f"{path}:2" in page
    assert "2 records refused" in page


def test_a_reply_without_verdict_is_a_failed_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / JUDGEMENTS_NAME, [judgement(1), judgement(2, reply="I cannot say.")])
    found = take(tmp_path, path)
    assert found.exit_code == 1
    by_status = {row["status"]: row for row in rows(found, "judgements")}
    assert (by_status["failed"]["verdict"], by_status["failed"]["reply"]) == (None, "I cannot say.")
    assert by_status["ok"]["verdict"] == "different"


def test_judgements_meet_the_results_they_are_about(tmp_path: Path) -> None:
    still = {"0": measured([0.6, 0.2], -1.0, [0]), "1": measured([0.6, 0.2], -1.0, [0])}
    files = [
        write_results(tmp_path, [result(1), result(2, unlearning_results=still), result(3)]),
        write_lines(tmp_path / JUDGEMENTS_NAME, [judgement(1), judgement(2), judgement(3, reply="Yes")]),
    ]
    found = take(tmp_path, *files)
    (cell,) = judged_cells(found.run.store(create=False), seed=0, cell_keys=found.cell_keys)
    assert dict(cell.verdicts) == {"same": 1, "different": 2, "unclear": 0}
    assert (cell.method, cell.lr) == ("ff2", 3e-5)
    assert cell.different.value == pytest.approx(2 / 3)
    # The second problem's answer did not change.
    assert (cell.different_changed.numerator, cell.different_changed.denominator) == (1, 2)


def test_a_change_too_large_for_a_number_has_no_efficacy(tmp_path: Path) -> None:
    wild = {"0": measured([0.6, 0.2], -900.0, [0]), "1": measured([0.6, 0.2], -1.0, [0])}
    (row,) = rows(take(tmp_path, write_results(tmp_path, [result(1, unlearning_results=wild)])), "unlearning")
    assert (row["efficacy"], row["cot_step_logprob"]) == (None, -1.0)


def test_weights_and_words_that_differ_do_not_mix(tmp_path: Path) -> None:
    other = "npo_KL_sentencize_s=True_lr=3e-05_rs=1001_pos=False_ff2=False.out"
    found = take(tmp_path, write_results(tmp_path, [result(1)]), write_results(tmp_path, [result(1)], name=other))
    tasks = rows(found, "unlearning")
    assert {row["method"] for row in tasks} == {"ff2", "all"}
    assert len({row["scope_key"] for row in tasks}) == len({row["cell_key"] for row in tasks}) == 2


@pytest.mark.parametrize("kind", ["results", "mistakes", "judgements"])
def test_a_report_stands_on_each_kind_alone(tmp_path: Path, kind: str) -> None:
    makers = {
        "results": lambda: write_results(tmp_path, [result(1), result(2)]),
        "mistakes": lambda: write_mistakes(tmp_path, [mistake(1), mistake(2)]),
        "judgements": lambda: write_lines(tmp_path / JUDGEMENTS_NAME, [judgement(1), judgement(2)]),
    }
    found = take(tmp_path, makers[kind]())
    page = (found.run.path / "report.html").read_bytes()
    assert b"published" in page
    assert build_report(found.run.path).html.read_bytes() == page


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, num_problems=2)
    with pytest.raises(StoreError, match="holds a run of fur_sweep; give published results a directory of their own"):
        take(tmp_path, write_results(tmp_path, [result(1)]), name="demo")


def test_nothing_is_stored_when_a_file_is_of_another_version(tmp_path: Path) -> None:
    good, bad = write_results(tmp_path, [result(1)]), write_mistakes(tmp_path, [{"version": 2}])
    with pytest.raises(DataError, match="no published file of a version known here"):
        take(tmp_path, good, bad)
    assert not (tmp_path / "published").exists()


def test_jobs_that_need_the_model_say_why_they_cannot(tmp_path: Path) -> None:
    found = take(tmp_path, write_results(tmp_path, [result(1)]))
    run = RunDirectory.at(found.run.path)
    with pytest.raises(StoreError, match="holds imported results, whose models are not here"):
        open_finished(run, run.store(create=False), {})


def test_the_command(tmp_path: Path) -> None:
    path = write_results(tmp_path, [result(1), "{", result(2)])
    with process_settings_restored():
        done = CliRunner().invoke(app, ["import-published", str(path), "--out", str(tmp_path / "theirs")])
        missing = CliRunner().invoke(app, ["import-published", str(tmp_path / "x.jsonl"), "--out", str(tmp_path / "y")])
        drawn = CliRunner().invoke(
            app,
            ["raters", "export", str(tmp_path / "theirs"), str(tmp_path / "study"), "--neutral", "2", "--lr", "3e-5"],
        )
    assert done.exit_code == 0, done.output
    assert f"refused: {path}:2" in done.output
    assert f"{path.name}: 2 lines of results, 1 refused" in done.output
    assert "rows: 3 problems, 2 cots, 6 cot_steps, 4 unlearning" in done.output
    assert (tmp_path / "theirs" / "report.html").exists()
    config = json.loads(rows(tmp_path / "theirs", "runs")[0]["config_json"])
    assert config["files"] == [str(path)]
    assert missing.exit_code == 2
    assert "error: " in missing.output
    assert drawn.exit_code == 0, drawn.output
    assert "2 steps to rate" in drawn.output


def study_file(path: Path) -> Path:
    line = {
        "Question": "Do foxes dig?", "options": "A): yes||B): no", "segmented_cot": "||".join(SENTENCES),
        "correct_answer": 0, "predicted_answer": 0, "target_step_idx": 1, "dataset": "sqa", "model": "Phi-3",
    }  # fmt: skip
    shifts = ((0.9, 5), (0.4, 2), (-0.5, 3), (0.1, 3))
    rows = [
        line | {"ID": f"r{n}", "Question": f"Do foxes dig, rated {n}?", "dp": dp, "rating": rating}
        for n, (dp, rating) in enumerate(shifts)
    ]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_report_says_what_published_results_are(tmp_path: Path) -> None:
    judged = [judgement(number, reply="No" if number < 4 else "Yes") for number in range(1, 6)]
    files = [
        write_lines(tmp_path / JUDGEMENTS_NAME, judged),
        write_lines(tmp_path / "LLaMA-3_openbook_NPO_KL_1e-05_judgements.jsonl", judged[:2]),
        write_mistakes(tmp_path, [mistake(1), mistake(7)]),
        study_file(tmp_path / "ratings.csv"),
    ]
    found = take(tmp_path, *files)
    page = found.report.read_text(encoding="utf-8") if found.report else ""
    # Sports: 5 judged and 2 with a CoT, one of them in both; openbookqa: 2; strategyqa: 4 rated.
    assert (
        "2 models, 3 data sets,\npublished by others: 12 problems, 6 CoTs, 7 judgements, 4 ratings; 0 records" in page
    )
    for wrong in ("start it again", "No feasible rate", "not counted", "<figure", 'href="#rates"', ">answer changed<"):
        assert wrong not in page
    assert page.count("they hold no unlearning of this model on this data set.") == 3
    assert "of 5 judged steps, the CoT after unlearning argues for another answer in 3, 60.0%" in page
    assert "at rate 1e-5: of 2 judged steps" in page
    assert "It holds the CoTs of 2 problems, 6 CoT steps together." in page
    assert "4 ratings of 4 steps: Pearson with ff-soft " in page
    assert '<h2 id="step-study">' in page
    table = pd.read_csv(found.run.path / "csv" / "judgements.csv").set_index("data_set")
    assert table["lr"].to_dict() == {"bbh_sports": 3e-5, "openbookqa": 1e-5}
    assert set(pd.read_csv(found.run.path / "csv" / "summary.csv")["data_set"]) == {
        "bbh_sports", "openbookqa", "strategyqa",
    }  # fmt: skip
    (rated,) = pd.read_csv(found.run.path / "csv" / "step_study.csv").to_dict("records")
    assert (rated["num_raters"], rated["num_steps"], rated["pearson_num_steps"]) == (1, 4, 4)
    assert rated["pearson"] == pytest.approx(scipy_stats.pearsonr([0.9, 0.4, -0.5, 0.1], [5, 2, 3, 3]).statistic)
    assert rated["spearman"] == pytest.approx(scipy_stats.spearmanr([0.9, 0.4, -0.5, 0.1], [5, 2, 3, 3]).statistic)


def test_a_panel_with_unlearning_keeps_its_rates(tmp_path: Path) -> None:
    openbook = tmp_path / "LLaMA-3_openbook_NPO_KL_1e-05_judgements.jsonl"
    found = take(tmp_path, write_results(tmp_path, [result(1)]), write_lines(openbook, [judgement(1)]))
    page = found.report.read_text(encoding="utf-8") if found.report else ""
    assert page.count("<figure>") == 1
    assert 'href="#rates"' in page
    assert page.count("they hold no unlearning of this model on this data set.") == 1
