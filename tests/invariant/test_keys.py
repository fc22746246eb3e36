"""Keys name what can change a result, no more and no less: code by import closure, settings, inputs item by item."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import fairwitness
from fairwitness.chains.study import CHAINS_CODE
from fairwitness.drafts import config as draft_config
from fairwitness.drafts import plan
from fairwitness.drafts.interventions import INTERVENTIONS
from fairwitness.drafts.measure import DraftFaithfulness
from fairwitness.drafts.study import DRAFTS_CODE
from fairwitness.fur import study
from fairwitness.fur.study import FUR_CODE
from fairwitness.fur.sweep import FurSweep
from fairwitness.fur.unlearn import UnlearnGroup
from fairwitness.records import code
from fairwitness.records.code import PLUMBING, closure
from tests.helpers.drafts import DRAFT, draft_settings, run_plain, write_drafts
from tests.helpers.sweeps import config_of, rows_of, run, settings, watch_pools, write_problems


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package's sources, to be changed."""
    sources = Path(fairwitness.__file__).parent
    ignored = shutil.ignore_patterns("weights", "templates", "__pycache__", "*.csv")
    return Path(shutil.copytree(sources, tmp_path / "fairwitness", ignore=ignored))


def revision(package: Path, roots: tuple[str, ...], without: tuple[str, ...] = ()) -> str:
    code._read.cache_clear()
    return code._revision(package, roots, (*PLUMBING, *without))


def edit(package: Path, module: str, old: str, new: str) -> None:
    path = package / module
    text = path.read_text(encoding="utf-8")
    assert old in text, (module, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_run_records_the_code_of_its_own_measure() -> None:
    fur, drafts = closure(*FurSweep.code), closure(*DraftFaithfulness.code)
    assert not [name for name in drafts if name.startswith("fairwitness.fur")]
    for other in ("drafts", "raters", "report", "analysis", "followups", "commands", "organisms"):
        assert not [name for name in fur if name.startswith(f"fairwitness.{other}")], other
    assert "fairwitness.lm.scoring" in fur
    assert "fairwitness.fur.rows" in fur


@pytest.mark.parametrize("roots", [CHAINS_CODE, FUR_CODE, DRAFTS_CODE, plan.CONTINUATIONS_CODE])
def test_comments_docstrings_and_other_packages_change_no_key(copied: Path, roots: tuple[str, ...]) -> None:
    before = revision(copied, roots)
    edit(copied, "raters/export.py", "def ", "# A comment in the raters' form.\ndef ")
    edit(copied, "raters/export.py", "import json", "import json\nUNUSED = 1")
    edit(copied, "report/build.py", "def ", "CHANGED = 2\n\n\ndef ")
    for name in roots:
        edit(copied, name.partition(".")[2].replace(".", "/") + ".py", "from __future__", "# Why.\nfrom __future__")
    edit(copied, "lm/scoring.py", '"""', '"""Other words: ')
    assert revision(copied, roots) == before


def test_a_changed_metric_has_another_key(copied: Path) -> None:
    before = revision(copied, FUR_CODE)
    edit(copied, "fur/rows.py", "-math.expm1(logprob - base_logprob)", "1 - math.exp(logprob - base_logprob)")
    changed = revision(copied, FUR_CODE)
    assert changed != before
    edit(copied, "lm/scoring.py", "def ", "EXTRA = 1\n\n\ndef ")
    assert revision(copied, FUR_CODE) not in (before, changed)


def test_a_new_intervention_file_changes_no_key(copied: Path) -> None:
    folder = copied / "drafts" / "interventions"
    stops = (plan.INTERVENTIONS_PACKAGE,)
    before = revision(copied, DRAFTS_CODE), revision(copied, plan.CONTINUATIONS_CODE, stops)
    text = (folder / "shift_mapping.py").read_text(encoding="utf-8")
    (folder / "another.py").write_text(text.replace("shift", "other"), encoding="utf-8")
    edit(
        copied, "drafts/interventions/__init__.py", "import", "import fairwitness.drafts.interventions.another\nimport"
    )
    assert (revision(copied, DRAFTS_CODE), revision(copied, plan.CONTINUATIONS_CODE, stops)) == before


def test_changed_code_measures_the_tasks_anew_and_keeps_the_cots(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))
    first = run(plain)
    watch = watch_pools(monkeypatch)
    run(plain)
    assert watch.items == []
    monkeypatch.setattr(study, "code_revision", lambda *_modules, **_stops: "another revision of a metric's code")
    second = run(plain)
    assert second.counts == first.counts
    assert sum(len(item.tasks) for item in watch.items if isinstance(item, UnlearnGroup)) > 0
    assert len(rows_of(second, "cots")) == len(rows_of(first, "cots"))
    keys = [{row["task_key"] for row in rows_of(result)} for result in (first, second)]
    assert len(keys[1]) == 2 * first.counts["ok"] + 2 * first.counts["skipped"]


def test_more_problems_keep_the_first_ones_chains(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = settings(tmp_path / "results", tiny_folder("llama"), write_problems(tmp_path / "animals.jsonl"))
    plain["data_sets"][0]["num_problems"] = 3
    first = run(plain)
    plain["data_sets"][0]["num_problems"] = 5
    watch = watch_pools(monkeypatch)
    second = run(plain)
    written = [request for item in watch.items for request in getattr(item, "requests", ())]
    assert len(written) == 2
    assert len(rows_of(second, "cots")) == 5
    # Fewer again: only the rows of these problems count.
    plain["data_sets"][0]["num_problems"] = 3
    third = run(plain)
    assert third.counts["ok"] + third.counts["skipped"] == first.counts["ok"] + first.counts["skipped"]
    assert config_of(plain).data_sets[0].num_problems == 3


def test_more_problems_and_a_new_intervention_keep_drafts_and_continuations(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = [{"problem_id": f"p{number}", "draft": DRAFT} for number in range(9)]
    plain = draft_settings(
        tmp_path / "results",
        tiny_folder("llama"),
        write_problems(tmp_path / "animals.jsonl"),
        write_drafts(tmp_path / "drafts.jsonl", drafts),
    )
    plain["data_sets"][0]["num_problems"] = 3
    run_plain(plain)
    plain["data_sets"][0]["num_problems"] = 5
    watch = watch_pools(monkeypatch)
    run_plain(plain)
    assert sum(len(item.requests) for item in watch.items if hasattr(item, "requests")) == 2
    watch.items.clear()
    more: dict[str, Any] = {**INTERVENTIONS, "another": INTERVENTIONS["shift_mapping"]}
    for module in (draft_config, plan):
        monkeypatch.setattr(module, "INTERVENTIONS", MappingProxyType(more))
    plain["interventions"] = ["shift_mapping", "corrupt_option", "another"]
    result = run_plain(plain)
    assert not [item for item in watch.items if hasattr(item, "requests")]
    rows = rows_of(result.run.store_path, "continuations")
    asked = sum(len(tree.branches) for item in watch.items for tree in item.trees)
    assert asked > 0
    assert asked == sum(row["intervention"] == "another" and row["status"] != "skipped" for row in rows)
