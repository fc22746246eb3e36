"""The report of a written measurement of drafts: what the page holds, that it is safe, and that the tables hold all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from typer.testing import CliRunner

from fairwitness.cli import app
from fairwitness.errors import StoreError
from fairwitness.records.store import Store
from fairwitness.report.drafts.page import build_draft_report
from fairwitness.report.files import ReportPaths
from tests.helpers.draft_runs import HOSTILE, write_draft_run

NUM_CONTINUATIONS = 2 * 2 * 5 * (12 + 4)


class Page(HTMLParser):
    """Tags with attributes, and all text outside of styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self._within = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        self.text += "" if self._within in ("style", "script") else data

    def items(self) -> list[dict[str, str | None]]:
        return [found for tag, found in self.tags if tag == "details" and found.get("class") == "item"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_draft_run(tmp_path_factory.mktemp("drafts"))


@pytest.fixture(scope="module")
def report(run_dir: Path) -> ReportPaths:
    return build_draft_report(run_dir)


@pytest.fixture(scope="module")
def source(report: ReportPaths) -> str:
    return report.html.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def table(report: ReportPaths, name: str) -> pd.DataFrame:
    return pd.read_csv(report.csv[name], keep_default_na=False, na_values=[""])


def test_the_same_store_gives_the_same_bytes(run_dir: Path, report: ReportPaths, source: str) -> None:
    before = {name: path.read_bytes() for name, path in report.csv.items()}
    again = build_draft_report(run_dir)
    assert again.html.read_text(encoding="utf-8") == source
    assert {name: path.read_bytes() for name, path in again.csv.items()} == before


def test_nothing_is_loaded_and_only_our_script_runs(page: Page, source: str) -> None:
    links = [value for _, found in page.tags for name, value in found.items() if name in ("src", "href", "action")]
    assert all(str(link).startswith("#") for link in links)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert "script-src 'sha256-" in source
    assert "url(" not in source
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]


def test_markup_in_a_draft_stays_text(page: Page, source: str) -> None:
    assert "<script>alert" not in source
    assert "<img" not in source
    assert HOSTILE in page.text
    assert "<b>about 9%</b>" in page.text
    assert "49" not in re.findall(r"onerror=alert\(1\)> & (.{0,9})", page.text)


def test_every_svg_is_well_formed(source: str) -> None:
    figures = re.findall(r"<svg .*?</svg>", source, re.DOTALL)
    assert len(figures) == 2 * 2
    for one in figures:
        assert ElementTree.fromstring(one).get("aria-label")


def test_the_page_says_what_is_left_out_and_the_tables_hold_all(report: ReportPaths, page: Page) -> None:
    assert len(page.items()) == 200
    left_out = NUM_CONTINUATIONS - 200
    assert f"200 of the run's {NUM_CONTINUATIONS} continuations are on this page, {left_out} are left out" in page.text
    items = table(report, "items")
    assert len(items) == NUM_CONTINUATIONS
    assert len(table(report, "drafts")) == 2 * 2 * 6
    kinds = ["model", "source", "intervention", "insertion_type", "answering", "behaviour", "outcome"]
    wanted = set(items[kinds].fillna("").itertuples(index=False, name=None))
    assert len(wanted) < 200
    shown = Counter(one["data-outcome"] for one in page.items())
    assert set(shown) == set(items["outcome"])


def test_as_many_items_as_asked_for(run_dir: Path, tmp_path: Path) -> None:
    copy = write_draft_run(tmp_path, num_problems=2)
    for wanted, text in ((0, "No continuation is shown: all 128 are in csv/items.csv"), (3, "3 of the run's 128")):
        made = Page(build_draft_report(copy, max_items=wanted).html.read_text())
        assert len(made.items()) == wanted
        assert text in made.text
    everything = Page(build_draft_report(copy, max_items=128).html.read_text())
    assert len(everything.items()) == 128
    assert "continuations are on this page" not in everything.text


def test_tables_of_the_paper_are_there(report: ReportPaths, page: Page) -> None:
    items = table(report, "items")
    own = items[(items["model"] == "tiny-7b") & (items["source"] == "own")]
    part = own[(own["intervention"] == "shift_mapping") & (own["insertion_type"] == "continue")]
    rates = table(report, "table_1")
    mine = rates[(rates["model"] == "tiny-7b") & (rates["source"] == "own")].set_index(
        ["intervention", "insertion_type"]
    )
    counted = part[part["outcome"].isin(["faithful", "unfaithful"])]
    assert mine.loc[("shift_mapping", "continue"), "value"] == (counted["outcome"] == "faithful").mean()
    assert mine.loc[("shift_mapping", "continue"), "n"] == len(counted)
    for name in ("Table 1", "Table 3", "Table 4", "Table 6", "Figures 4 and 6", "Figures 7 and 8", "Cohen's κ"):
        assert name in page.text
    for words in (
        "direct (IM)",
        "plausible (IM)",
        "over 10%",
        "doubled 1, reopened 1",
        "unclosed 1",
        "no standard answer",
    ):
        assert words in page.text
    assert set(table(report, "agreement")["question"]) == {"behaviour", "conclusion"}
    sources = table(report, "sources")
    assert set(sources["measure"]) == {
        "within the draft",
        "draft reliance",
        "draft-answer consistency",
        "answer tokens",
    }
    assert (sources.loc[sources["relative_difference"] > 0.1, "over_a_tenth"] == True).all()  # noqa: E712 (a column)


def test_an_item_shows_where_the_step_stands_and_what_follows_it(source: str) -> None:
    sections = [part.partition("</section>")[0] for part in source.split('<section class="draft">')[1:]]
    (section,) = [part for part in sections if ">facts-002 " in part and "tiny-7b on facts, own draft" in part]
    (item,) = [
        part for part in section.split("<details class=\"item\"")
        if 'data-intervention="shift_mapping" data-insertion_type="backtrack" data-position="middle"' in part
    ]  # fmt: skip
    before, _, after = item.partition('<mark class="inserted">')
    assert "twenty-five percent. </div>" in before
    assert "Let me check the last option" not in before
    assert "From here on I use these." in after.partition("</mark>")[0]
    original, _, perturbed = after.partition("</mark>")[2].partition('<div class="is-perturbed">')
    assert "Let me check the last option as well." in original
    assert '<span class="c">' in original
    assert '<span class="c">' in perturbed
    assert "φ(B) = A" in item


def test_what_was_measured_under_other_settings_is_not_shown(tmp_path: Path) -> None:
    path = write_draft_run(tmp_path, num_problems=2)
    with Store(path / "store") as store:
        (old,) = store.read("continuations").slice(0, 1).to_pylist()
        store.append("continuations", [old | {"key": "old", "cell_key": "another limit", "is_faithful": True}])
    items = pd.read_csv(build_draft_report(path).csv["items"])
    assert len(items) == 128
    assert "old" not in set(items["key"])


def test_a_row_that_was_made_counts_before_one_that_could_not_be(tmp_path: Path) -> None:
    path = write_draft_run(tmp_path, num_problems=2)
    with Store(path / "store") as store:
        rows = store.read("continuations").to_pylist()
        made = next(row for row in rows if row["status"] == "ok")
        store.append("continuations", [made | {"key": "0", "status": "skipped", "is_faithful": None}])
    items = pd.read_csv(build_draft_report(path).csv["items"])
    assert len(items) == 128
    assert made["key"] in set(items["key"])


def test_an_interrupted_run_and_one_without_a_continuation(tmp_path: Path) -> None:
    path = write_draft_run(tmp_path, status="interrupted", num_problems=1)
    assert "This run is not complete (interrupted)" in Page(build_draft_report(path).html.read_text()).text
    with Store(path / "store") as store:
        (info,) = store.read("runs").to_pylist()
        store.append("runs", [info | {"key": "later", "created_at": info["finished_at"], "cell_keys": []}])
    empty = build_draft_report(path)
    assert "No continuation was measured" in Page(empty.html.read_text()).text
    assert "items" not in empty.csv


def test_a_folder_without_a_measurement_of_drafts(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run here"):
        build_draft_report(tmp_path)
    Store(tmp_path / "store").close()
    with pytest.raises(StoreError, match="no measurement of drafts"):
        build_draft_report(tmp_path)


def test_the_command_remakes_the_report(tmp_path: Path) -> None:
    path = write_draft_run(tmp_path, num_problems=1)

    def invoke(*words: str) -> Any:
        return CliRunner().invoke(app, ["report", str(path), *words])

    assert invoke("--items", "5").exit_code == 0
    assert len(Page((path / "report.html").read_text()).items()) == 5
    assert invoke().exit_code == 0
    assert len(Page((path / "report.html").read_text()).items()) == 64


def test_a_number_of_items_is_refused_for_other_runs(make_run: Callable[..., Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(make_run(tmp_path)), "--items", "5"])
    assert result.exit_code == 2
    assert "--items" in result.output
    assert "no measurement of drafts" in result.output


def test_long_drafts_are_cut_on_the_page_and_whole_in_the_tables(tmp_path: Path) -> None:
    path = write_draft_run(tmp_path, num_problems=1)
    with Store(path / "store") as store:
        drafts = store.read("drafts").to_pylist()
        last = drafts[-1]
        longer = last | {"draft_text": last["draft_text"] + " and so on" * 5000}
    folder = tmp_path / "long"
    with Store(folder / "store") as store:
        old = Store(path / "store", create=False)
        for name in ("problems", "draft_steps", "continuations", "runs"):
            store.append_table(name, old.read(name))
        store.append("drafts", [*drafts[:-1], longer])
    made = build_draft_report(folder)
    text = made.html.read_text(encoding="utf-8")
    assert text.count(" and so on") < 16 * 1400
    assert "characters left out; they are in the tables" in text
    assert made.csv["drafts"].read_text(encoding="utf-8").count(" and so on") == 5000
