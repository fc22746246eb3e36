"""The filters of the report of drafts in a real browser, from a file; also with the keyboard alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwitness.report.drafts.page import build_draft_report
from tests.helpers.browser import Browser
from tests.helpers.draft_runs import write_draft_run

pytestmark = pytest.mark.slow
NUM_ITEMS = 2 * 2 * 3 * 16
SHOWN = "[...document.querySelectorAll('details.item')].filter(e => e.offsetParent !== null)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_draft_report(write_draft_run(tmp_path_factory.mktemp("drafts"), num_problems=3)).html


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(
        f"(() => {{ const e = document.querySelector('#filter select[name={name}]'); e.value = '{value}'; "
        "e.dispatchEvent(new Event('change')); })()"
    )


def search(browser: Browser, words: str) -> None:
    browser.run(
        f"(() => {{ const e = document.querySelector('#filter input'); e.value = {words!r}; "
        "e.dispatchEvent(new Event('input')); })()"
    )


def said(browser: Browser) -> str:
    return str(browser.run("document.querySelector('#filter output').textContent"))


def count(browser: Browser, *conditions: str) -> int:
    """How many items the page holds that fit conditions on their values, counted apart from its script."""
    selector = "".join(f"[{condition}]" for condition in conditions)
    return int(browser.run(f'document.querySelectorAll("details.item{selector}").length'))


def test_filters_show_what_fits_and_say_how_many(page: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(page)
        assert browser.complaints() == []
        assert said(browser) == f"{NUM_ITEMS} of {NUM_ITEMS} shown"
        choose(browser, "model", "tiny-7b")
        assert said(browser) == f"{NUM_ITEMS // 2} of {NUM_ITEMS} shown"
        conditions = ["data-model='tiny-7b'", "data-intervention='shift_mapping'", "data-behaviour='following'",
                      "data-outcome='unfaithful'"]  # fmt: skip
        for name, value in (("intervention", "shift_mapping"), ("behaviour", "following"), ("outcome", "unfaithful")):
            choose(browser, name, value)
        wanted = count(browser, *conditions)
        assert 0 < wanted < NUM_ITEMS // 2
        assert said(browser) == f"{wanted} of {NUM_ITEMS} shown"
        assert browser.run(f"{SHOWN}.length") == wanted
        assert browser.run(f"{SHOWN}.every(e => e.dataset.outcome === 'unfaithful' && e.dataset.model === 'tiny-7b')")
        drafts = browser.run("[...document.querySelectorAll('section.draft')].filter(e => !e.hidden).length")
        assert drafts == browser.run(f"new Set({SHOWN}.map(e => e.closest('section'))).size")
        choose(browser, "source", "writer-r1")
        choose(browser, "position", "end")
        search(browser, "no such words anywhere")
        assert said(browser) == f"0 of {NUM_ITEMS} shown"
        assert not browser.run("document.getElementById('none-left').hidden")
        browser.run("document.querySelector('#filter button').click()")
        assert said(browser) == f"{NUM_ITEMS} of {NUM_ITEMS} shown"
        assert browser.run("document.activeElement.name") == "words"
        search(browser, "ALERT(")
        assert said(browser) == f"{NUM_ITEMS // 3} of {NUM_ITEMS} shown"
        assert browser.complaints() == []


def test_with_the_keyboard_alone(page: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open(page)
        browser.run("document.querySelector('#filter select[name=model]').focus()")
        browser.press("t", 84, "t")
        assert browser.run("document.activeElement.value").startswith("tiny-")
        assert said(browser) == f"{NUM_ITEMS // 2} of {NUM_ITEMS} shown"
        for _ in range(12):
            browser.press("Tab", 9)
            if browser.run("document.activeElement.name") == "words":
                break
        for letter in "facts-001":
            browser.press(letter, 0, letter)
        assert said(browser) == f"{NUM_ITEMS // 6} of {NUM_ITEMS} shown"
        for _ in range(8):
            browser.press("Tab", 9)
            if browser.run("document.activeElement.parentElement.className") == "item":
                break
        browser.press("Enter", 13, "\r")
        assert browser.run("document.activeElement.parentElement.open")
        named = "[...document.querySelectorAll('#filter select, #filter input')].every(e => e.labels.length === 1)"
        assert browser.run(named)


def test_without_its_script_the_page_reads_the_same(page: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.html"
    source = page.read_text(encoding="utf-8")
    bare.write_text(source.replace("sha256-", "sha256-0"), encoding="utf-8")
    with Browser(tmp_path) as browser:
        browser.open(bare)
        assert browser.run("document.getElementById('filter').hidden")
        assert browser.run(f"{SHOWN}.length") == NUM_ITEMS
