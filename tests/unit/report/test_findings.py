"""What a reader is told first: why nothing was measured, and what makes the figures doubtful."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwitness.analysis.faithfulness import Infeasible
from fairwitness.analysis.health import Health, Spread, panel_health
from fairwitness.analysis.panels import Panel, build_panels
from fairwitness.analysis.runs import load_run
from fairwitness.report.build import build_report
from fairwitness.report.findings import FEW_PROBLEMS, finding
from fairwitness.stats.bootstrap import Estimate

NOTHING = Infeasible(None, "No feasible rate: no rate has a measured efficacy and specificity.")


@pytest.fixture(scope="module")
def panel(run_dir: Path) -> Panel:
    return next(panel for panel in build_panels(load_run(run_dir)) if panel.data_set == "organism")


@pytest.fixture(scope="module")
def sound(panel: Panel) -> Health:
    return replace(panel_health(panel, {}, np.random.default_rng(0)), num_counted=FEW_PROBLEMS)


def cautions(panel: Panel, health: Health) -> tuple[str, ...]:
    return finding(panel, [], health).cautions


def test_small_letter_mass_and_rare_agreement(panel: Panel, sound: Health) -> None:
    assert cautions(panel, sound) == ()
    rare = replace(sound.agreement, value=0.25, numerator=3.0, denominator=12.0)
    found = cautions(panel, replace(sound, direct_letter_mass=Spread(0.001, 0.01), agreement=rare))
    assert "at most 0.01 of the probability" in found[0]
    assert "agree on only 3 of 12 problems" in found[1]


def accuracy(low: float | None) -> Estimate:
    return Estimate(0.4, low, 0.6, 12.0, 30.0, 30, "bootstrap")


@pytest.mark.parametrize(("low", "warns"), [(0.2, True), (0.25, True), (0.26, False), (None, False)])
def test_accuracy_that_guessing_would_explain(panel: Panel, sound: Health, low: float | None, warns: bool) -> None:
    health = replace(sound, direct_accuracy=accuracy(low), chance=0.25)
    assert health.is_near_chance == warns
    found = cautions(panel, health)
    assert len(found) == warns
    if low == 0.2:
        assert found == (
            "Caution: of 30 direct answers 40.0% (95% interval 20.0 to 60.0) are right; guessing gives 25.0%, and a "
            "model that guesses has no reasoning to be faithful to.",
        )
    assert cautions(panel, replace(health, chance=None)) == ()


@pytest.mark.parametrize(("number", "warns"), [(0, False), (1, True), (29, True), (30, False)])
def test_few_problems(panel: Panel, sound: Health, number: int, warns: bool) -> None:
    found = cautions(panel, replace(sound, num_counted=number))
    assert len(found) == warns
    if warns:
        noun = "problem" if number == 1 else "problems"
        assert f"counts only {number} {noun}; with fewer than 30" in found[0]


def test_report_hands_the_cautions_on(make_run: Callable[..., Path], tmp_path: Path) -> None:
    few, many = (build_report(make_run(tmp_path / str(n), num_problems=n)) for n in (12, 40))
    assert [line.partition(": Caution: ")[0] for line in few.cautions] == ["tiny/m on arc", "tiny/m on organism"]
    assert all("ff-hard counts only" in line for line in few.cautions)
    page = few.html.read_text(encoding="utf-8")
    assert "ff-hard counts only" in page
    assert page.count("guessing 25.0") == 2
    assert many.cautions == ()


def told(panel: Panel, **changes: Any) -> str:
    changed = replace(panel, choice=NOTHING, **changes)
    (sentence,) = finding(changed, [], panel_health(changed, {}, np.random.default_rng(0))).sentences
    return sentence


def test_nothing_measured_because_the_job_ended(panel: Panel) -> None:
    assert "the job ended before that" in told(panel, cells=(), steps=panel.steps.head(0))


def test_nothing_measured_because_all_was_skipped_or_failed(panel: Panel) -> None:
    steps = panel.steps.head(5).assign(status=["skipped"] * 4 + ["failed"], reason=["a", "b", "b", "b", "c"])
    assert told(panel, steps=steps) == (
        "No step was unlearned: of 5 tasks 4 were skipped and 1 failed, most often (3) because: b."
    )
    assert told(panel, steps=steps.head(1)) == "No step was unlearned: of 1 task 1 was skipped, all because: a."


def test_nothing_measured_because_no_problem_agrees(panel: Panel) -> None:
    sentence = told(panel, cots=panel.cots.assign(agree=False))
    assert sentence.startswith("Nothing can be said: of 12 problems none has the same direct and CoT answer")


def test_undefined_for_another_reason_says_what_the_rule_says(panel: Panel) -> None:
    assert told(panel) == NOTHING.reason
