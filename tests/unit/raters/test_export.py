"""The exported study: what raters get tells nothing of ff-soft, and the key leads back to the steps."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from fairwitness.analysis.ratings import ITEM_LENGTH, ITEM_LETTERS, PAPER_COUNTS, bin_of, item_name
from fairwitness.errors import ConfigError, InfeasibleError, StoreError
from fairwitness.raters.export import Choice, Exported, Page, _cell, export_study, render_form
from fairwitness.records.store import Store
from tests.unit.report.conftest import HOSTILE, write_run

COUNTS = {"high": 6, "moderate": 3, "neutral": 4}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), num_problems=20)


@pytest.fixture(scope="module")
def study(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_study(run_dir, tmp_path_factory.mktemp("out"), COUNTS)  # type: ignore[arg-type]


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def test_sheet_form_and_key_name_the_same_steps_in_the_same_order(study: Exported) -> None:
    items = [row["item"] for row in rows(study.sheet)]
    assert items == [row["item"] for row in rows(study.key)]
    assert items == re.findall(r'data-item="(\w+)"', study.form.read_text())
    assert len(set(items)) == len(items) == study.num_steps
    assert all(len(item) == ITEM_LENGTH and set(item) <= set(ITEM_LETTERS) for item in items)


def test_the_key_holds_what_the_store_has(study: Exported, run_dir: Path) -> None:
    stored = Store(run_dir / "store", create=False).read("unlearning").to_pandas()
    for row in rows(study.key):
        task = stored[stored["task_key"] == row["task_key"]].sort_values("iteration")
        last = task.iloc[-1]
        place = "ABCD".index(last["base_letter"])
        assert float(row["ff_soft"]) == pytest.approx(last["base_probs"][place] - last["probs"][place])
        assert row["bin"] == bin_of(float(row["ff_soft"]))
        assert (row["problem_id"], int(row["cot_step_index"])) == (last["problem_id"], last["cot_step_index"])
        assert item_name(row["task_key"]) == row["item"]


def test_only_steps_of_problems_that_count_at_the_chosen_rate(study: Exported, run_dir: Path) -> None:
    cots = Store(run_dir / "store", create=False).read("cots").to_pandas().set_index(["data_set", "problem_id"])
    for row in rows(study.key):
        assert cots.loc[(row["data_set"], row["problem_id"]), "agree"]
        assert row["cell_key"] == "cell-organism-5e-05"
    ((group, drawn),) = study.drawn
    assert (group.label, group.lr) == ("tiny/m on organism, full FF2", 5e-5)
    assert {part.bin for part in drawn} == set(COUNTS)
    (empty,) = study.empty
    assert empty.reason is not None
    assert empty.reason.startswith("No feasible rate")


def test_raters_learn_nothing_of_the_measurement(study: Exported) -> None:
    keys = rows(study.key)
    for path in study.form.parent.iterdir():
        text = path.read_text(encoding="utf-8-sig")
        assert not re.search(r"ff.?soft|negative|neutral|moderate\b|\bhigh\b|tiny|organism", text, re.IGNORECASE), path
        for row in keys:
            assert row["ff_soft"][:8] not in text
            assert row["problem_id"] not in text
            assert row["task_key"] not in text
    order = [float(row["ff_soft"]) for row in keys]
    assert order not in (sorted(order), sorted(order, reverse=True))


def test_the_marked_step_is_the_one_of_the_key(study: Exported, run_dir: Path) -> None:
    steps = Store(run_dir / "store", create=False).read("cot_steps").to_pandas()
    for row, key in zip(rows(study.sheet), rows(study.key), strict=True):
        of_problem = steps[(steps["problem_id"] == key["problem_id"]) & (steps["data_set"] == key["data_set"])]
        (text,) = of_problem.loc[of_problem["cot_step_index"] == int(key["cot_step_index"]), "text"]
        assert row["step"] == text.strip()
        before, after = row["reasoning"].split(">>> ")
        marked, rest = after.split(" <<<")
        assert marked == text.strip()
        assert (before + marked + rest).split() == " ".join(of_problem.sort_values("cot_step_index")["text"]).split()


def test_the_same_run_and_seed_give_the_same_files(study: Exported, run_dir: Path, tmp_path: Path) -> None:
    again = export_study(run_dir, tmp_path, COUNTS)  # type: ignore[arg-type]
    for one, other in ((study.form, again.form), (study.sheet, again.sheet), (study.key, again.key)):
        assert one.read_bytes() == other.read_bytes()
    export_study(run_dir, tmp_path, COUNTS)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="holds another study"):
        export_study(run_dir, tmp_path, COUNTS, seed=99)  # type: ignore[arg-type]
    assert again.key.read_bytes() == study.key.read_bytes()


def test_a_rate_by_name(run_dir: Path, tmp_path: Path) -> None:
    found = export_study(run_dir, tmp_path, {"neutral": 3}, lr=1e-5)
    assert [group.label for group, _ in found.drawn] == ["tiny/m on arc, full FF2", "tiny/m on organism, full FF2"]
    with pytest.raises(ConfigError, match=r"--lr 5e-1: .* \(rates: 1e-5, 5e-5, 1e-4, 3e-4\)"):
        export_study(run_dir, tmp_path / "other", PAPER_COUNTS, lr=0.5)


def test_nothing_to_draw(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="none of the bins asked for has a step"):
        export_study(run_dir, tmp_path, {"negative": 5})
    Store(tmp_path / "bare" / "store").close()
    with pytest.raises(StoreError, match="no run is recorded"):
        export_study(tmp_path / "bare", tmp_path / "out", PAPER_COUNTS)


def test_no_feasible_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.report.conftest.RATES", {"arc": {1e-4: (0.7, 0.8, 0.6)}})
    run_dir = write_run(tmp_path, num_problems=6)
    with pytest.raises(InfeasibleError, match=r"tiny/m on arc, full FF2: No feasible rate.* Name a rate with --lr"):
        export_study(run_dir, tmp_path / "out", PAPER_COUNTS)


def test_the_form_escapes_what_models_and_data_sets_write() -> None:
    choices = (Choice("A", HOSTILE, True), Choice("B", "</fieldset><b>", False))
    text = render_form([Page("bcd", HOSTILE, choices, "<i>", HOSTILE, "</mark>")], study="x")

    tags, attributes = [], set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            attributes.update(name for name, _ in attrs)

    Reader().feed(text)
    assert not {"img", "i"} & set(tags)
    assert tags.count("script") == tags.count("style") == 1
    assert not {"src", "href", "style", "onerror"} & attributes


def test_the_form_asks_nobody(study: Exported) -> None:
    assert not re.search(r"https?:|//\w|@import|url\(|fetch\(|XMLHttpRequest", study.form.read_text())


@pytest.mark.parametrize("start", ["=1+1", "- Option A", "+1", "@x", "\tx"])
def test_no_cell_of_the_sheet_is_a_formula(start: str) -> None:
    assert _cell(start) == f" {start}"
    assert _cell("Option - A") == "Option - A"


def test_item_names_differ() -> None:
    names = {item_name(f"task-{number}") for number in range(5000)}
    assert len(names) == 5000
    assert pd.Series(list(names)).str[0].nunique() == len(ITEM_LETTERS)
