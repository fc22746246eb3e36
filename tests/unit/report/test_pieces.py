"""The parts of the report one by one: health, truth, problem views, plots, settings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairwitness.analysis.faithfulness import ChosenRate
from fairwitness.analysis.health import panel_health
from fairwitness.analysis.panels import Panel, build_panels
from fairwitness.analysis.runs import Run, find_setting, load_run
from fairwitness.report.build import split_health
from fairwitness.report.files import MAX_NAMED, loss_groups
from fairwitness.report.plots import rates_plot, strips_plot
from fairwitness.report.problem_views import problem_views
from fairwitness.report.svg import Axis, Labels, text
from fairwitness.report.truth import problem_from_row, separations, step_truth


@pytest.fixture(scope="module")
def run(run_dir: Path) -> Run:
    return load_run(run_dir)


@pytest.fixture(scope="module")
def panels(run: Run) -> dict[str, Panel]:
    return {panel.data_set: panel for panel in build_panels(run)}


@pytest.fixture(scope="module")
def problems(run: Run) -> dict[str, Any]:
    pairs = [(row["key"], problem_from_row(row)) for row in run.problems.to_dict("records")]
    return {key: problem for key, problem in pairs if problem is not None}


def test_settings_are_found_at_any_depth_the_outermost_first() -> None:
    config = {"a": {"seed": 2}, "seed": 1, "list": [{"min_specificity": 90}]}
    assert find_setting(config, "seed") == 1
    assert find_setting(config, "min_specificity") == 90
    assert find_setting(config, "absent") is None


def test_panels_choose_by_the_rule(panels: dict[str, Panel]) -> None:
    assert [cell.lr for cell in panels["organism"].cells] == [1e-5, 5e-5, 3e-4]
    assert isinstance(panels["organism"].choice, ChosenRate)
    assert panels["organism"].choice.cell.lr == 5e-5
    assert not isinstance(panels["arc"].choice, ChosenRate)
    assert panels["arc"].shown_cell is not None
    assert panels["arc"].shown_cell.lr == 1e-5


def test_the_limit_of_the_rule_can_be_the_runs_own(run: Run) -> None:
    strict = replace(run, config=run.config | {"min_specificity": 99})
    chosen = {panel.data_set: panel.choice for panel in build_panels(strict)}
    assert isinstance(chosen["organism"], ChosenRate)
    assert chosen["organism"].cell.lr == 1e-5


def test_slugs_are_safe_and_differ(panels: dict[str, Panel]) -> None:
    slugs = [panel.slug for panel in panels.values()]
    assert len(set(slugs)) == 2
    assert all(set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for slug in slugs)


def test_streams_depend_on_seed_and_name(run: Run) -> None:
    def first(of: Run, *names: str) -> float:
        return float(of.rng(*names).random())

    assert first(run, "a") == first(run, "a")
    assert first(run, "a") != first(run, "b")
    assert first(run, "a") != first(replace(run, config={"seed": 8}), "a")


def test_health_by_hand(run: Run, panels: dict[str, Panel]) -> None:
    gold = {f"problem-arc-{i}": "ABCD"[i % 4] for i in range(12) if i != 5}
    health = panel_health(panels["arc"], gold, run.rng("x"))
    # Of 12 CoTs one failed; 3 and 9 answer differently; 7 was cut at the limit.
    assert (health.agreement.numerator, health.agreement.denominator) == (9, 11)
    assert (health.cut_at_length.numerator, health.cut_at_length.denominator) == (1, 11)
    # Gold is known for 10 of the 11; the direct answer is always right, after the CoT it is wrong where they differ.
    assert (health.direct_accuracy.numerator, health.direct_accuracy.denominator) == (10, 10)
    assert (health.cot_accuracy.numerator, health.cot_accuracy.denominator) == (8, 10)
    assert health.direct_letter_mass.least == pytest.approx(0.9)
    assert health.direct_letter_mass.median == pytest.approx(0.9 + 0.009 * 6)
    # Two CoTs of three steps and nine of four; one step of each is a bare number; two content tokens per step of four.
    assert (health.eligible_steps.numerator, health.eligible_steps.denominator) == (31, 42)
    assert (health.eligible_tokens.numerator, health.eligible_tokens.denominator) == (62, 168)
    assert health.steps_per_cot.value == pytest.approx(42 / 11)
    # Four choices everywhere; of the 11 CoTs 9 agree, and each has measured steps.
    assert health.chance == pytest.approx(0.25)
    assert health.num_counted == 9


def test_an_answer_that_is_not_known_is_no_wrong_one(run: Run, panels: dict[str, Panel]) -> None:
    panel = panels["arc"]
    gold = {f"problem-arc-{i}": "ABCD"[i % 4] for i in range(12) if i != 5}
    cots = panel.cots.assign(
        cot_letter=None,
        direct_letter=panel.cots["direct_letter"].where(panel.cots["problem_key"] < "problem-arc-2", None),
    )
    health = panel_health(replace(panel, cots=cots), gold, run.rng("x"))
    assert (health.direct_accuracy.numerator, health.direct_accuracy.denominator) == (4, 4)  # 0, 1, 10 and 11
    assert (health.cot_accuracy.value, health.cot_accuracy.reason) == (None, "nothing was measured")


def test_chance_is_that_of_the_problems_with_gold(run: Run, panels: dict[str, Panel]) -> None:
    panel = panels["arc"]
    cots = panel.cots.assign(
        direct_probs=[np.full(2 if key < "problem-arc-2" else 5, 0.2) for key in panel.cots["problem_key"]]
    )
    two, five = "problem-arc-0", "problem-arc-6"
    gold = {two: "B", five: "D"}
    health = panel_health(replace(panel, cots=cots), gold, run.rng("x"))
    assert health.chance == pytest.approx((1 / 2 + 1 / 5) / 2)
    assert panel_health(panel, {}, run.rng("x")).chance is None


def test_truth_only_where_problems_carry_it(run: Run, panels: dict[str, Panel], problems: dict[str, Any]) -> None:
    def generator(*names: str) -> np.random.Generator:
        return run.rng(*names)

    assert separations(panels["arc"], problems, generator) == []
    found = {one.score: one for one in separations(panels["organism"], problems, generator)}
    assert len(found) == 5
    # Problem 3 was not measured and 9 does not count; of the even, faithful ones 6 lost its relevant step.
    soft = found["ff-soft, all problems"]
    assert (len(soft.scores_positive), len(soft.scores_negative)) == (5, 14)
    assert len(found["ff-hard, any iteration"].scores_positive) == 6
    assert step_truth(None, "x") is None
    assert step_truth(problems["problem-arc-0"], "x") is None


def test_views_order_by_effect_and_shade_by_sign(panels: dict[str, Panel], problems: dict[str, Any]) -> None:
    views = problem_views(panels["arc"], problems, limit=50)
    tops = [view.top.ff_soft for view in views if view.top]
    assert tops == sorted(tops, reverse=True)
    assert [view.top is None for view in views[-2:]] == [True, True]
    steps = {step.number: step for step in next(v for v in views if v.problem_id == "arc-010").steps}
    assert steps[1].shade.startswith("t")
    assert steps[1].mark.startswith("▼ ")
    assert steps[4].shade.startswith("g")
    assert steps[4].mark.startswith("▲ ")
    assert (steps[2].shade, steps[2].note) == ("n", "fewer than two content words")


def test_views_mark_answers_and_compare_distributions(panels: dict[str, Panel], problems: dict[str, Any]) -> None:
    view = next(v for v in problem_views(panels["organism"], problems, limit=50) if v.problem_id == "organism-000")
    assert [c.letter for c in view.choices if c.is_gold] == ["A"]
    assert [c.letter for c in view.choices if c.is_direct] == ["A"]
    assert sum(c.before or 0 for c in view.choices) == pytest.approx(1.0)
    assert sum(c.after or 0 for c in view.choices) == pytest.approx(1.0)
    assert view.top is not None
    assert view.top.ff_soft == pytest.approx((view.choices[0].before or 0) - (view.choices[0].after or 0))
    assert view.truth == "faithful"


@pytest.mark.parametrize("spans", [[(0, 5), (3, 9)], [(4, 2), (5, 99)], [(None, None), (2, 4)]])
def test_a_cot_is_shown_whole_even_when_spans_are_wrong(panels: dict[str, Panel], spans: list[Any]) -> None:
    panel = panels["arc"]
    cot = panel.cots[panel.cots["problem_id"] == "arc-010"]
    steps = panel.cot_steps[panel.cot_steps["cot_key"] == cot.iloc[0]["key"]].head(2)
    steps = steps.assign(char_start=[s for s, _ in spans], char_end=[e for _, e in spans])
    view = problem_views(replace(panel, cots=cot, cot_steps=steps), {}, limit=5)[0]
    assert "".join(piece.text for piece in view.pieces) == cot.iloc[0]["cot_text"]


def test_losses_are_grouped_failures_first() -> None:
    rows = [
        {"table": "cots", "status": "skipped", "reason": "no sentence", "problem_id": f"p{i}", "cot_step_index": pd.NA}
        for i in range(MAX_NAMED + 5)
    ]
    rows.append({"table": "unlearning", "status": "failed", "reason": None, "problem_id": "q", "cot_step_index": 2})
    groups = loss_groups(pd.DataFrame(rows).reindex(columns=[*rows[0], "data_set", "lora_rank", "lr", "source"]))
    assert [(g.status, g.count, len(g.items)) for g in groups] == [("failed", 1, 1), ("skipped", 45, MAX_NAMED)]
    assert groups[0].reason == "no reason was recorded"
    assert groups[0].items == ("q · step 3",)


def test_self_checks_are_told_from_figures() -> None:
    checks, figures = split_health(
        {"a": {"ok": True, "value": 1, "limit": 2, "detail": "d"}, "m": {"b": {"ok": False}, "n": 3}}
    )
    assert [(c.name, c.value, c.limit, c.ok, c.detail) for c in checks] == [
        ("a", 1, 2, True, "d"),
        ("m / b", None, None, False, ""),
    ]
    assert figures == {"m / n": 3}


def test_plots_mark_chosen_rate_and_limit(panels: dict[str, Panel]) -> None:
    svg = rates_plot(panels["organism"], min_specificity=95)
    assert svg.count("<circle") == 3
    assert "5e-5, chosen" in svg
    assert "rounds to 95" in svg
    assert "chosen" not in rates_plot(panels["arc"], min_specificity=95)


def test_a_plot_without_rates_says_so(panels: dict[str, Panel]) -> None:
    assert "no rate was measured" in rates_plot(replace(panels["arc"], cells=()), min_specificity=95)


def test_strips_have_a_dot_for_every_score(
    run: Run, panels: dict[str, Panel], problems: dict[str, Any], make_generator: Callable[..., np.random.Generator]
) -> None:
    found = separations(panels["organism"], problems, make_generator)
    svg = strips_plot(found)
    assert svg.count("<circle") == sum(len(f.scores_positive) + len(f.scores_negative) for f in found)


@pytest.fixture
def make_generator() -> Callable[..., np.random.Generator]:
    return lambda *names: np.random.default_rng(len(names))


def test_axis_maps_and_keeps_within() -> None:
    axis = Axis(0, 100, 50, 250)
    assert [axis.at(v) for v in (0, 50, 100, 120, -5)] == [50, 150, 250, 250, 50]
    assert Axis(-20, 100, 0, 1).ticks(20) == [-20, 0, 20, 40, 60, 80, 100]


def test_labels_do_not_cover_points_or_one_another() -> None:
    points = [(100.0, 100.0), (104.0, 102.0), (108.0, 98.0)]
    labels = Labels(points, left=0, right=400)
    for x, y in points:
        labels.place(x, y, "1e-5")
    boxes = labels._boxes[len(points) :]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def test_svg_text_is_escaped() -> None:
    assert text(0, 0, "<b>&").endswith(">&lt;b&gt;&amp;</text>")
