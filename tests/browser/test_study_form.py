"""The rating form in a real browser, from a file: fill in, leave, come back, save, read back."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fairwitness.analysis.ratings import PAPER_COUNTS
from fairwitness.raters.export import Exported, export_study
from fairwitness.raters.ratings import StudyImportConfig, import_ratings
from fairwitness.records.store import Store
from tests.helpers.browser import Browser
from tests.unit.report.conftest import write_run

pytestmark = pytest.mark.slow
SHOWN = "document.querySelector('section:not([hidden])').dataset.item"


@pytest.fixture
def study(tmp_path: Path) -> Exported:
    return export_study(write_run(tmp_path, num_problems=12), tmp_path / "out", PAPER_COUNTS)


def click(browser: Browser, name: str) -> None:
    browser.run(f"document.getElementById('{name}').click()")


def said(browser: Browser) -> str:
    return str(browser.run("document.getElementById('said').textContent"))


def rate(browser: Browser, value: int) -> str:
    """Rates the step that is shown; gives its name."""
    browser.run(f"document.querySelector('section:not([hidden]) input[value=\"{value}\"]').click()")
    return str(browser.run(SHOWN))


def test_fill_in_leave_come_back_save_and_import(study: Exported, tmp_path: Path) -> None:
    rows = csv.DictReader(io.StringIO(study.key.read_text(), newline=""))
    order = [row["item"] for row in rows]
    with Browser(tmp_path) as browser:
        browser.open(study.form)
        assert browser.complaints() == []
        click(browser, "save")
        assert said(browser) == "Please enter your name or initials first."
        browser.run("document.getElementById('rater').focus()")
        for letter in 'Zoë "Q", B':
            browser.press(letter, 0, letter)
        click(browser, "save")
        assert said(browser) == "There is no rating to save yet."
        given = {rate(browser, 5): 5}
        click(browser, "next")
        given[rate(browser, 1)] = 1
        given[rate(browser, 2)] = 2
        click(browser, "next")
        click(browser, "next")

        browser.open(study.form)
        assert browser.run(SHOWN) == order[3]
        click(browser, "unrated")
        assert browser.run(SHOWN) == order[4]
        for _ in range(len(order)):
            if browser.run("document.getElementById('unrated').disabled"):
                break
            click(browser, "unrated")
            given[rate(browser, 4)] = 4
        click(browser, "save")
        assert said(browser).startswith(f"{len(order)} of {len(order)} ratings saved as ratings_Zoë_Q_B.csv")
        saved = browser.downloaded()
        assert browser.complaints() == []
    assert set(given) == set(order)
    found = import_ratings(StudyImportConfig(run=str(tmp_path / "demo"), files=(str(saved),)))
    assert (found.num_new, found.refused) == (len(order), ())
    stored = Store(tmp_path / "demo" / "store", create=False).read("ratings").to_pylist()
    assert {row["item_key"]: row["rating"] for row in stored} == given
    assert {row["rater"] for row in stored} == {'Zoë "Q", B'}


def test_with_the_keyboard_alone(study: Exported, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(study.form)
        browser.press("Tab", 9)
        assert browser.run("document.activeElement.id") == "rater"
        browser.press("Tab", 9)
        browser.press(" ", 32, " ")
        browser.press("ArrowDown", 40)
        assert browser.run("document.querySelector('section:not([hidden]) input:checked').value") == "4"
        assert browser.run("document.getElementById('count').textContent").startswith("1 of ")
        names = "[...document.querySelectorAll('button, input')].every(e => e.textContent.trim() || e.labels.length)"
        assert browser.run(names)
        browser.run("window.confirm = () => true")
        click(browser, "clear")
        assert browser.run("document.querySelectorAll('input:checked').length") == 0
        assert browser.run("JSON.parse(localStorage.getItem(localStorage.key(0))).ratings") == {}
