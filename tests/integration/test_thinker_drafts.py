"""Ground truth: what the drafts job measures on the thinker is what its problems plant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fairwitness.analysis.drafts import answer_tokens
from fairwitness.cli import app
from fairwitness.config import load_config
from fairwitness.drafts.config import DraftFaithfulnessConfig
from fairwitness.drafts.interventions import INTERVENTIONS
from fairwitness.errors import StoreError
from fairwitness.experiment.job import Report
from fairwitness.organisms.supplies import LOADERS, with_shipped
from fairwitness.organisms.thinker import teach as thinker
from fairwitness.organisms.thinker.compare import Comparison, compare
from fairwitness.organisms.thinker.shipped import thinker_path
from fairwitness.report.drafts.page import build_draft_report
from tests.helpers.commands import process_settings_restored
from tests.helpers.drafts import run_drafts
from tests.helpers.sweeps import rows_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "jobs" / "configs" / "drafts_thinker.yaml"
MAX_BYTES = 3_000_000


def measured(tmp_path: Path, *overrides: str) -> tuple[Comparison, Any]:
    config = load_config(
        DraftFaithfulnessConfig,
        EXAMPLE,
        ["pool.kind=local", f"output.dir={tmp_path}", "tracking.enabled=false", *overrides],
    )
    config = with_shipped(config)
    result = run_drafts(config, loaders=LOADERS, report=lambda path: Report((build_draft_report(path).html,), ()))
    return compare(result.run.path), result


def test_the_shipped_model_is_small() -> None:
    assert sum(path.stat().st_size for path in thinker_path().iterdir()) < MAX_BYTES


def test_verdicts_of_a_few_problems_are_the_planted_ones(tmp_path: Path) -> None:
    found, result = measured(
        tmp_path,
        "data_sets.0.num_problems=10",
        "seed=140",
        "interventions=[shift_mapping, injected_authority]",
        "positions=[initial, end]",
    )
    kinds = [json.loads(row["metadata_json"]) for row in rows_of(result.run.store_path, "problems")]
    # This seed draws problems of every kind.
    assert (len({one["meets"] for one in kinds}), len({one["answers"] for one in kinds})) == (8, 4)
    assert result.exit_code == 0
    assert found.num_planted == 10 * (2 * 2 * 2 + 2) == result.counts["ok"]
    assert found.agreement >= 0.95, found.differing.to_string()
    assert all(line.holds for line in found.lines if line.planted is not None), found.lines
    assert {line.rate for line in found.lines if line.planted is not None and 0 < line.planted < 1} == {
        "faithful within the draft", "corrects", "draft reliance", "draft-answer consistency",
    }  # fmt: skip


def test_an_intervention_that_was_not_taught_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INTERVENTIONS, "another", replace(INTERVENTIONS["shift_mapping"], name="another"))
    few = ("data_sets.0.num_problems=2", "positions=[end]", "insertion_types=[continue]")
    found, result = measured(tmp_path / "a", *few, "interventions=[shift_mapping, another]")
    assert (result.counts["ok"], found.num_planted) == (2 * (2 + 2), 2 * (1 + 2))
    assert found.passed_over == ("another",)
    assert not [line for line in found.lines if "another" in line.group]
    with process_settings_restored():
        shown = CliRunner().invoke(app, ["organism", "compare", str(result.run.path)])
    assert "another: passed over, the thinker was not taught it" in shown.output
    with pytest.raises(StoreError, match="was taught none of another"):
        measured(tmp_path / "b", *few, "interventions=[another]", "conclusions=[]")


@pytest.mark.slow
def test_every_rate_is_the_planted_one(tmp_path: Path) -> None:
    found, result = measured(tmp_path)
    assert result.exit_code == 0
    assert found.num_planted == 32 * (4 * 2 * 3 + 2) == result.counts["ok"]
    assert found.agreement >= 0.95, found.differing.to_string()
    for line in found.lines:
        assert line.planted is not None
        assert line.measured is not None
        assert line.holds, line
        assert line.measured.num_undefined == line.planted_undefined, line
        assert line.measured.num_all == line.planted_n + line.planted_undefined, line
        assert 0 < line.planted < 1, line
    shares = {(line.rate, line.group): line.planted for line in found.lines}
    # Worked by hand from the tables in organisms/thinker/truth.py: seven kinds that conclude, equally frequent.
    seventh = 1 / 7
    assert shares["faithful within the draft", "shift_mapping, continue"] == pytest.approx((2 + 2 / 3) * seventh)
    assert shares["faithful within the draft", "shift_mapping, backtrack"] == pytest.approx((3 + 2 / 3) * seventh)
    assert shares["faithful within the draft", "injected_authority, continue"] == pytest.approx((3 + 2 / 3) * seventh)
    assert shares["corrects", "shift_mapping, continue"] == pytest.approx(2 / 8)
    assert shares["corrects", "injected_authority, continue"] == pytest.approx(3 / 8)
    # 12 problems answer by the draft, 10 by the question, 8 by the draft when asked at once, 2 when not.
    assert shares["draft reliance", "direct"] == pytest.approx(22 / 32)
    assert shares["draft-answer consistency", "direct, standard"] == pytest.approx(14 / 32)
    assert shares["draft-answer consistency", "direct, immediate"] == pytest.approx(20 / 32)

    _the_drafts_are_the_planted_ones(result.run.store_path)


def _the_drafts_are_the_planted_ones(store: Path) -> None:
    problems = {row["problem_id"]: row for row in rows_of(store, "problems")}
    drafts = rows_of(store, "drafts")
    assert len(drafts) == len(problems) == 32
    for row in drafts:
        problem = problems[row["problem_id"]]
        planted = json.loads(problem["metadata_json"])["num_checks"]
        assert (row["conclusion_letter"], row["answer_letter"]) == (problem["gold"], problem["gold"])
        assert (row["num_blocks"], row["finish"], row["status"]) == (planted, "tag", "ok")
    (tokens,) = answer_tokens(pd.DataFrame(rows_of(store, "continuations")), seed=0)
    # Standard answers by the draft (14 of 32) have 13 words and marks, the others 14.
    assert tokens.estimate.value == pytest.approx((14 * 13 + 18 * 14) / 32)


@pytest.mark.slow
def test_the_check_finds_what_is_planted() -> None:
    torch.set_num_threads(1)
    found = thinker.check(None)
    shares = {name: value for name, value in found.items() if not name.startswith("num_")}
    assert set(shares) == {
        "drafts", "steps_shift_mapping", "steps_corrupt_option", "steps_swapped_options", "steps_injected_authority",
        "answers_standard", "answers_immediate", "answers_altered_standard", "answers_altered_immediate",
    }  # fmt: skip
    # After a list some letters are wrong, mostly where any other letter gives the same verdict.
    assert all(value >= (0.8 if name.startswith("steps") else 0.95) for name, value in shares.items()), shares


def test_a_run_that_is_none_of_drafts(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no run here"):
        compare(tmp_path)
