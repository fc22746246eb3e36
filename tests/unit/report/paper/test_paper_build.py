"""The paper report as files: one safe page, a CSV per exhibit, drawings; the same bytes; clear errors."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from fairwitness.errors import StoreError
from fairwitness.report.paper.build import EXHIBITS, PaperPaths, build_paper
from tests.unit.report.paper.conftest import HOSTILE


@pytest.fixture(scope="module")
def paths(hand: Path, tmp_path_factory: pytest.TempPathFactory) -> PaperPaths:
    return build_paper([hand], tmp_path_factory.mktemp("paper") / "out")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.outside: list[str] = []
        self.ids: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href") and value and not value.startswith("#"):
                self.outside.append(value)
            if name == "href" and value and value.startswith("#"):
                self.targets.add(value[1:])
            if name == "id" and value:
                self.ids.add(value)


def test_the_page_loads_nothing_and_runs_nothing(paths: PaperPaths) -> None:
    page = _Tags()
    page.feed(paths.html.read_text(encoding="utf-8"))
    assert page.outside == []
    assert not {"script", "link", "img", "iframe", "b"} & page.tags
    assert page.targets <= page.ids
    assert set(EXHIBITS) <= page.ids


def test_texts_of_the_data_are_shown_as_they_are(paths: PaperPaths) -> None:
    page = paths.html.read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; {{ 7*7 }} 哪一种气体?" in page
    assert HOSTILE not in page


def test_every_exhibit_with_data_has_a_csv_and_the_page_names_its_files(paths: PaperPaths) -> None:
    page = paths.html.read_text(encoding="utf-8")
    assert set(paths.csv) | set(paths.missing) == set(EXHIBITS)
    assert not set(paths.csv) & set(paths.missing)
    for name, path in paths.csv.items():
        with path.open(encoding="utf-8", newline="") as stream:
            assert len(list(csv.reader(stream))) > 1, name
        assert f"csv/{name}.csv" in page
    for name, path in paths.figures.items():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert f"figures/{name}.svg" in page or f"figures/{re.sub('_[^_]+$', '', name)}_*.svg" in page
    for why in paths.missing.values():
        assert re.search(r"fairwitness \w+", why), why
        assert why.partition(";")[0] in page


def test_every_rate_has_n_and_interval(paths: PaperPaths) -> None:
    for name in ("table_1", "table_5", "table_6", "table_8", "table_11"):
        frame = pd.read_csv(paths.csv[name])
        for column in [c.removesuffix("_num_problems") for c in frame if c.endswith("_num_problems")]:
            known = frame[frame[column].notna()]
            assert (known[f"{column}_num_problems"] > 0).all()
            assert (known[f"{column}_low"] <= known[column] + 1e-12).all()
            assert (known[f"{column}_high"] >= known[column] - 1e-12).all()
            assert frame.loc[frame[column].isna(), f"{column}_reason"].notna().all()


def test_the_same_store_gives_the_same_bytes_and_old_files_go(hand: Path, paths: PaperPaths, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    stale, other = out / "figures" / "figure_3_99.svg", out / "figures" / "mine.svg"
    for path in (stale, other):
        path.write_text("<svg/>", encoding="utf-8")
    again = build_paper([hand], out)
    for first, second in zip(_files(paths), _files(again), strict=True):
        assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    assert not stale.exists()
    assert other.exists()


def _files(paths: PaperPaths) -> list[Path]:
    return [paths.html, *paths.csv.values(), *paths.figures.values()]


def test_several_runs_in_one_report(make_run: Callable[..., Path], tmp_path: Path) -> None:
    first = make_run(tmp_path, "first", models=["one"], data_sets=["pets"])
    second = make_run(tmp_path, "second", models=["two"], data_sets=["pets"])
    paths = build_paper([first, second], tmp_path / "out")
    frame = pd.read_csv(paths.csv["table_8"])
    assert list(zip(frame["run"], frame["model"], strict=True)) == [("first", "one")] * 3 + [("second", "two")] * 3
    assert "<h1>first, second</h1>" in paths.html.read_text(encoding="utf-8")


def test_runs_of_one_name_are_told_apart(make_run: Callable[..., Path], tmp_path: Path) -> None:
    runs = [make_run(tmp_path / place, "same", models=["m"], data_sets=["pets"], code=place) for place in ("a", "b")]
    frame = pd.read_csv(build_paper(runs, tmp_path / "out").csv["table_1"])
    assert list(frame["run"]) == ["a/same", "b/same"]


def test_a_run_given_twice_or_copied_is_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    first = make_run(tmp_path, "first", models=["m"], data_sets=["pets"])
    second = make_run(tmp_path, "second", models=["m"], data_sets=["pets"])
    with pytest.raises(StoreError, match="given twice"):
        build_paper([first, tmp_path / "x" / ".." / "first"], tmp_path / "out")
    with pytest.raises(StoreError, match="runs first and second hold the same measurements"):
        build_paper([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_run_and_a_place_that_cannot_be_written(hand: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent"):
        build_paper([tmp_path / "absent"], tmp_path / "out")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be written"):
        build_paper([hand], tmp_path / "file")


def test_a_run_in_which_nothing_was_asked(make_run: Callable[..., Path], tmp_path: Path) -> None:
    paths = build_paper([make_run(tmp_path, models=[], data_sets=[])], tmp_path / "out")
    assert set(paths.missing) == set(EXHIBITS)
    assert "No problem was asked" in paths.html.read_text(encoding="utf-8")
