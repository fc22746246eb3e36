"""The report of a synthetic run: what the page holds, that it is safe and self-contained, that the tables are exact."""

import csv
import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from sklearn.metrics import roc_auc_score

from fairwitness.errors import StoreError
from fairwitness.records.store import Store
from fairwitness.report.build import ReportPaths, build_report

CHOSEN = "cell-organism-5e-05"


class Page(HTMLParser):
    """The page as tags with attributes, and the texts within them."""

    VOID = ("meta", "br", "input", "line", "rect", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(f"{tag}.{dict(attrs).get('class') or ''}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and not self._open.pop().startswith(f"{tag}."):
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((tuple(self._open), data))

    def all_text(self) -> str:
        return "".join(text for path, text in self.texts if not path[-1:] or path[-1] not in ("style.", "script."))

    def text_in(self, element: str, but_not: str = "-") -> list[str]:
        """Texts of each element `tag.class`, without those inside `but_not`."""
        found: list[str] = []
        inside = False
        for path, text in self.texts:
            if element not in path:
                inside = False
                continue
            if not inside:
                found.append("")
                inside = True
            if not any(name.startswith(but_not) for name in path):
                found[-1] += text
        return found


@pytest.fixture(scope="module")
def report(run_dir: Path) -> ReportPaths:
    return build_report(run_dir)


@pytest.fixture(scope="module")
def page(report: ReportPaths) -> Page:
    return Page(report.html.read_text(encoding="utf-8"))


def read(report: ReportPaths, name: str) -> list[dict[str, str]]:
    with report.csv[name].open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def rows_of(run_dir: Path, table: str) -> list[dict[str, Any]]:
    return Store(run_dir / "store", create=False).read(table).to_pylist()


def measured(run_dir: Path, cell: str) -> list[dict[str, Any]]:
    """Ok rows of a cell whose problem's answers agree."""
    agree = {row["problem_key"] for row in rows_of(run_dir, "cots") if row["agree"]}
    rows = rows_of(run_dir, "unlearning")
    return [r for r in rows if r["cell_key"] == cell and r["status"] == "ok" and r["problem_key"] in agree]


def test_nothing_is_loaded_from_anywhere(page: Page, report: ReportPaths) -> None:
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "img", "iframe", "object", "embed", "base", "video", "audio", "source", "form"}
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    text = report.html.read_text(encoding="utf-8")
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_hostile_text_is_shown_and_never_runs(page: Page) -> None:
    scripts = [text for path, text in page.texts if path[-1:] == ("script.",)]
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert "alert" not in "".join(scripts)
    shown = page.all_text()
    assert '<script>alert("x")</script><img src=x onerror=alert(1)> & "quotes" {{ 7*7 }}' in shown
    assert "<script>alert(2)</script>" in shown
    assert "Then <b>another</b> gas." in shown


def test_only_the_packaged_script_is_allowed_to_run(page: Page) -> None:
    policy = next(a["content"] or "" for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_text_of_any_language_survives(page: Page) -> None:
    shown = page.all_text()
    assert "哪一种气体是植物光合作用所需要的" in shown
    assert "Cellules végétales: naïveté" in shown


def test_every_cot_is_shown_whole(page: Page, run_dir: Path) -> None:
    shown = page.text_in("div.cot", but_not="sup.")
    for cot in rows_of(run_dir, "cots"):
        if cot["status"] == "ok":
            assert cot["cot_text"] in shown


def test_rates_are_exact(report: ReportPaths, run_dir: Path) -> None:
    cells = read(report, "rates")
    assert len(cells) == 5
    for cell in cells:
        rows = measured(run_dir, cell["cell_key"])
        for name in ("efficacy", "specificity"):
            assert float(cell[name]) == pytest.approx(np.mean([row[name] for row in rows]), rel=1e-12)
            assert float(cell[f"{name}_denominator"]) == len(rows)
        problems = {row["problem_key"] for row in rows}
        flipped = {row["problem_key"] for row in rows if row["flipped"]}
        finally_flipped = {row["problem_key"] for row in rows if row["flipped"] and row["iteration"] == 3}
        assert float(cell["ff_hard_any"]) == len(flipped) / len(problems)
        assert float(cell["ff_hard_final"]) == len(finally_flipped) / len(problems)
        assert int(cell["num_problems_counted"]) == len(problems)


def test_every_measure_has_an_interval_around_it(report: ReportPaths) -> None:
    for cell in read(report, "rates"):
        for name in ("efficacy", "specificity", "ff_hard_any", "ff_hard_final", "step_flip_any", "ff_soft_final"):
            low, value, high = (float(cell[f"{name}{end}"]) for end in ("_low", "", "_high"))
            assert low <= value <= high
            assert low < high
            assert cell[f"{name}_interval"] in ("bootstrap", "wilson")


def test_steps_are_exact(report: ReportPaths, run_dir: Path) -> None:
    final = {row["task_key"]: row for row in rows_of(run_dir, "unlearning") if row["iteration"] == 3}
    shown = [step for step in read(report, "steps") if step["status"] == "ok"]
    expected = sorted(
        row["base_probs"]["ABCD".index(row["base_letter"])] - row["probs"]["ABCD".index(row["base_letter"])]
        for row in final.values()
    )
    assert sorted(float(step["ff_soft_final"]) for step in shown) == expected
    assert {step["truth"] for step in shown if step["data_set"] == "organism"} == {"relevant", "irrelevant"}
    assert {step["truth"] for step in shown if step["data_set"] == "arc"} == {""}


def test_the_rule_is_applied_and_shown(report: ReportPaths, page: Page) -> None:
    assert [cell["cell_key"] for cell in read(report, "rates") if cell["chosen"] == "True"] == [CHOSEN]
    arc, organism = read(report, "summary")
    assert (organism["chosen_lr"], organism["nearest_miss_lr"]) == ("5e-05", "")
    assert (arc["chosen_lr"], arc["nearest_miss_lr"], arc["measures_at"]) == ("", "1e-05", "nearest miss")
    shown = page.all_text()
    assert "No feasible rate: none of 2 keeps specificity at 95 or above after rounding; nearest miss 1e-5" in shown
    assert "5e-5, chosen" in shown


def test_findings_carry_n_and_interval(page: Page, report: ReportPaths) -> None:
    organism = read(report, "summary")[1]
    hard = float(organism["ff_hard_any_numerator"]), float(organism["ff_hard_any_denominator"])
    sentence = (
        f"changed the answer in {hard[0]:.0f} of {hard[1]:.0f} problems: ff-hard is {100 * hard[0] / hard[1]:.1f}%"
    )
    interval = f"(95% interval {100 * float(organism['ff_hard_any_low']):.1f} to"
    assert f"{sentence} {interval}" in page.all_text()


def test_separation_equals_scikit_learn(report: ReportPaths, run_dir: Path) -> None:
    truth = {
        row["key"]: json.loads(row["metadata_json"])["faithful"]
        for row in rows_of(run_dir, "problems")
        if row["metadata_json"]
    }
    rows = measured(run_dir, CHOSEN)
    keys = sorted({row["problem_key"] for row in rows})
    flipped = [any(row["flipped"] for row in rows if row["problem_key"] == key) for key in keys]
    found = {row["score"]: row for row in read(report, "separation")}
    hard = found["ff-hard, any iteration"]
    assert float(hard["auroc"]) == pytest.approx(roc_auc_score([truth[key] for key in keys], flipped), abs=1e-12)
    assert float(hard["auroc_low"]) <= float(hard["auroc"]) <= float(hard["auroc_high"])
    steps = [row for row in rows if row["iteration"] == 3 and truth[row["problem_key"]]]
    shift = [
        r["base_probs"]["ABCD".index(r["base_letter"])] - r["probs"]["ABCD".index(r["base_letter"])] for r in steps
    ]
    soft = found["ff-soft, faithful problems"]
    assert float(soft["auroc"]) == pytest.approx(roc_auc_score([r["cot_step_index"] == 0 for r in steps], shift))
    assert int(soft["num_positive"]) + int(soft["num_negative"]) == len(steps)


def test_everything_lost_is_listed_with_its_reason(report: ReportPaths, page: Page, run_dir: Path) -> None:
    lost = [
        (table, row["status"], row["reason"])
        for table in ("problems", "cots", "cot_steps", "unlearning")
        for row in rows_of(run_dir, table)
        if row["status"] != "ok" and row["reason"] != "of another run"
    ]
    listed = [(row["table"], row["status"], row["reason"]) for row in read(report, "skipped_failed")]
    assert sorted(listed) == sorted(lost)
    shown = page.all_text()
    assert all(reason in shown for _, _, reason in lost)


def test_rows_of_other_runs_stay_out(report: ReportPaths, page: Page) -> None:
    assert "other-model" not in page.all_text()
    assert all("of another run" not in path.read_text(encoding="utf-8") for path in report.csv.values())


def test_problems_that_do_not_count_say_why(report: ReportPaths, page: Page) -> None:
    reasons = {row["problem_id"]: row for row in read(report, "problems") if row["lr"] in ("1e-05", "")}
    assert reasons["arc-009"]["reason"] == "direct and CoT answers differ"
    assert reasons["arc-009"]["counted"] == "False"
    assert reasons["arc-004"]["cot_reason"].startswith("the prompt is longer")
    shown = page.all_text()
    assert "Not counted in ff-hard: direct and CoT answers differ." in shown
    assert "Not counted in ff-hard: the prompt is longer than the context (512 tokens)." in shown


def test_self_checks_are_shown_passed_or_not(page: Page) -> None:
    shown = page.all_text()
    assert "npo loss at iteration 0" in shown
    assert "did not pass" in shown


def test_it_is_remade_byte_for_byte_whatever_the_order_of_rows(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path, num_problems=8)
    first = _contents(build_report(directory))
    with Store(directory / "store") as store:
        for table in ("problems", "cots", "cot_steps", "unlearning", "runs"):
            rows = store.read(table)
            order = np.random.default_rng(0).permutation(rows.num_rows)
            for part in (directory / "store" / table).glob("*.parquet"):
                part.unlink()
            shuffled = Store(directory / "store")
            shuffled.append_table(table, rows.take(order) if rows.num_rows else rows)
            shuffled.close()
    assert _contents(build_report(directory)) == first


def test_an_interrupted_run_says_so(make_run: Callable[..., Path], tmp_path: Path) -> None:
    text = build_report(make_run(tmp_path, num_problems=2, status="interrupted")).html.read_text(encoding="utf-8")
    assert "This run is not complete (interrupted)" in text


def test_a_run_that_measured_nothing_has_a_report(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path, num_problems=0)
    report = build_report(directory)
    assert "No problem was asked yet." in report.html.read_text(encoding="utf-8")
    assert len(read(report, "skipped_failed")) == 1
    assert all(len(pd.read_csv(path).columns) for path in report.csv.values())


def test_a_run_killed_before_its_first_task_has_a_report(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path, num_problems=2, status="running")
    shutil.rmtree(directory / "store" / "unlearning")
    report = build_report(directory)
    assert [line.partition(":\n  No step was unlearned")[0] for line in report.findings] == [
        "tiny/m on arc",
        "tiny/m on organism",
    ]
    assert len(read(report, "problems")) == 4
    assert read(report, "steps") == []


def test_a_carriage_return_breaks_no_table(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path, num_problems=2)
    name = "two\rlines, =1+1"
    with Store(directory / "store") as store:
        refused = {"key": "refused-2", "data_set": "arc", "data_revision": "r1", "problem_id": name}
        store.append("problems", [refused | {"source": "arc.jsonl:1", "status": "refused", "reason": "a\rb"}])
    report = build_report(directory)
    whole = pd.read_csv(report.csv["skipped_failed"])
    assert whole.loc[whole["key"] == "refused-2", ["problem_id", "reason"]].to_numpy().tolist() == [[name, "a\rb"]]
    assert whole["problem_id"].isna().sum() == 1
    assert set(whole["table"]) <= {"problems", "cots", "cot_steps", "unlearning"}


def test_one_problem_gives_values_without_invented_intervals(make_run: Callable[..., Path], tmp_path: Path) -> None:
    report = build_report(make_run(tmp_path, num_problems=1))
    organism = read(report, "summary")[1]
    assert organism["efficacy"] != ""
    assert organism["efficacy_low"] == ""
    assert organism["efficacy_reason"] == "one problem gives no interval"


def test_the_page_says_what_it_leaves_to_the_tables(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairwitness.report.build.MAX_PROBLEMS", 2)
    monkeypatch.setattr("fairwitness.report.build.MIN_PROBLEMS_PER_PANEL", 3)
    report = build_report(make_run(tmp_path, num_problems=8))
    page = Page(report.html.read_text(encoding="utf-8"))
    assert len([1 for tag, a in page.tags if tag == "details" and (a.get("class") or "").startswith("problem")]) == 6
    assert "The page holds the 3 problems with the largest ff-soft of 8" in page.all_text()
    assert len({row["problem_key"] for row in read(report, "problems")}) == 16


def test_plots_are_files_of_their_own(report: ReportPaths) -> None:
    assert len(report.plots) == 2
    for path in report.plots.values():
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == (3 if "organism" in path.name else 2)


def test_without_a_run_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        build_report(tmp_path / "nothing")
    Store(tmp_path / "store").close()
    with pytest.raises(StoreError, match="no run is recorded"):
        build_report(tmp_path)


def test_a_report_that_cannot_be_written_is_a_clear_error(make_run: Callable[..., Path], tmp_path: Path) -> None:
    directory = make_run(tmp_path, num_problems=1)
    (directory / "csv").write_text("in the way")
    with pytest.raises(StoreError, match="the report cannot be written"):
        build_report(directory)


def test_the_store_is_only_read(run_dir: Path, report: ReportPaths) -> None:
    rows = Store(run_dir / "store", create=False).read("runs", ["key"], pc.field("status") == "done")
    assert rows.num_rows == 2
    assert report.html.parent == run_dir


def _contents(report: ReportPaths) -> dict[str, bytes]:
    paths = [report.html, *report.csv.values(), *report.plots.values()]
    return {path.name: path.read_bytes() for path in paths}
