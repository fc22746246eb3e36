"""Aggregates of a FUR cell, worked by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairwitness.analysis.faithfulness import (
    CellFaithfulness,
    ChosenRate,
    Infeasible,
    cell_faithfulness,
    choose_rate,
)
from fairwitness.analysis.step_results import (
    DISAGREE,
    FLIP_UNDEFINED,
    NO_BASE_ANSWER,
    problem_results,
    step_results,
)
from fairwitness.stats.bootstrap import Estimate, wilson


def row(problem: str, step: int | None, iteration: int, **given: Any) -> dict[str, Any]:
    """A row of `unlearning`; without further values an ok row in which nothing changed."""
    ok = iteration > 0
    values = {
        "task_key": f"{problem}/{step}",
        "cell_key": "cell",
        "problem_key": f"key-{problem}",
        "problem_id": problem,
        "cot_step_index": step,
        "model": "m",
        "data_set": "d",
        "method": "ff2",
        "lora_rank": None,
        "lr": 1e-5,
        "attempt": 1,
        "iteration": iteration,
        "base_letter": "A" if ok else None,
        "base_probs": [0.75, 0.25] if ok else None,
        "predicted_letter": "A" if ok else None,
        "probs": [0.75, 0.25] if ok else None,
        "letter_mass": 0.9 if ok else None,
        "flipped": False if ok else None,
        "efficacy": 0.5 if ok else None,
        "specificity": 1.0 if ok else None,
        "num_held_out": 20 if ok else None,
        "status": "ok" if ok else "skipped",
        "reason": None if ok else "fewer than two content words",
    }
    return values | given


def flip(problem: str, step: int, iteration: int, **given: Any) -> dict[str, Any]:
    changed = {"predicted_letter": "B", "probs": [0.25, 0.75], "flipped": True}
    return row(problem, step, iteration, **(changed | given))


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def cell_of(*rows: dict[str, Any], agree: dict[str, bool | None]) -> CellFaithfulness:
    return cell_faithfulness(frame(*rows), agree, rng=np.random.default_rng(0))


AGREE = {"key-p": True, "key-q": True, "key-r": True}


def test_the_fraction_example_of_the_published_code() -> None:
    """Four instances that each lose half of the step's probability have efficacy 0.5, not 0.1875."""
    rows = [row(p, 0, i, efficacy=0.5) for p in "pqrs" for i in (1, 2, 3)]
    assert cell_of(*rows, agree={f"key-{p}": True for p in "pqrs"}).efficacy.value == 0.5


def test_efficacy_and_specificity_average_iterations_steps_and_problems() -> None:
    cell = cell_of(
        row("p", 0, 1, efficacy=0.2, specificity=1.0),
        row("p", 0, 2, efficacy=0.4, specificity=0.9),
        row("p", 1, 1, efficacy=0.6, specificity=0.8),
        row("p", 1, 2, efficacy=0.8, specificity=0.7),
        row("q", 0, 1, efficacy=-0.5, specificity=1.0),
        row("q", 0, 2, efficacy=0.9, specificity=1.0),
        agree=AGREE,
    )
    assert cell.efficacy.value == pytest.approx(2.4 / 6)
    assert cell.specificity.value == pytest.approx(5.4 / 6)
    assert (cell.efficacy.denominator, cell.efficacy.num_clusters) == (6.0, 2)


def test_a_flip_at_any_iteration_counts_as_any_but_not_as_final() -> None:
    cell = cell_of(flip("p", 0, 1), row("p", 0, 2), row("q", 0, 1), flip("q", 0, 2), row("r", 0, 1), agree=AGREE)
    assert (cell.ff_hard_any.value, cell.ff_hard_any.denominator) == (pytest.approx(2 / 3), 3.0)
    assert (cell.ff_hard_final.numerator, cell.ff_hard_final.denominator) == (1.0, 3.0)


def test_one_flipping_step_makes_the_problem_faithful_and_half_its_steps() -> None:
    cell = cell_of(flip("p", 0, 1), row("p", 1, 1), row("q", 0, 1), row("q", 1, 1), agree=AGREE)
    assert cell.ff_hard_any.value == 0.5
    assert cell.step_flip_any.value == 0.25
    assert cell.step_flip_any.num_clusters == 2


def test_ff_soft_is_taken_from_the_base_letter_at_the_final_iteration() -> None:
    steps = step_results(
        frame(
            row("p", 0, 1, base_letter="B", base_probs=[0.2, 0.8], probs=[0.5, 0.5]),
            row("p", 0, 2, base_letter="B", base_probs=[0.2, 0.8], probs=[0.9, 0.1]),
            row("p", 0, 3, base_letter="B", base_probs=[0.2, 0.8], probs=[0.1, 0.9]),
        )
    )
    only = steps.iloc[0]
    assert only["ff_soft_final"] == pytest.approx(-0.1)
    assert only["ff_soft_max"] == pytest.approx(0.7)
    assert only["ff_soft_mean"] == pytest.approx((0.3 + 0.7 - 0.1) / 3)
    assert only["num_iterations"] == 3


def test_rows_may_come_in_any_order() -> None:
    rows = [row("p", 0, 1), flip("p", 0, 2), row("q", 1, 1), row("q", 1, 2), row("q", 0, 0)]
    assert cell_of(*rows, agree=AGREE) == cell_of(*rows[::-1], agree=AGREE)


def test_problems_that_disagree_are_measured_but_never_counted() -> None:
    cell = cell_of(
        flip("p", 0, 1, efficacy=1.0),
        row("q", 0, 1),
        row("r", 0, 1),
        agree={"key-p": False, "key-q": True, "key-r": None},
    )
    assert cell.ff_hard_any.denominator == 1.0
    assert cell.efficacy.value == 0.5
    assert cell.excluded == {DISAGREE: 1, NO_BASE_ANSWER: 1}
    assert (cell.num_problems, cell.num_tasks_ok) == (3, 3)


def test_skipped_steps_leave_the_problem_its_measured_ones() -> None:
    cell = cell_of(row("p", 0, 0), flip("p", 1, 1), row("q", 0, 1), agree=AGREE)
    assert (cell.ff_hard_any.value, cell.ff_hard_any.denominator) == (0.5, 2.0)
    assert (cell.num_tasks_ok, cell.num_tasks_skipped, cell.num_tasks_failed) == (2, 1, 0)
    assert cell.step_flip_any.denominator == 2.0


def test_a_problem_without_measured_step_is_in_no_denominator_and_named() -> None:
    cell = cell_of(row("p", 0, 0), row("p", 1, 0, status="failed", reason="loss is nan"), row("q", 0, 1), agree=AGREE)
    assert cell.ff_hard_any.denominator == 1.0
    assert sum(cell.excluded.values()) == 1
    assert next(iter(cell.excluded)).startswith("no measured step (")
    assert (cell.num_tasks_skipped, cell.num_tasks_failed) == (1, 1)


def test_a_task_without_step_is_counted() -> None:
    cell = cell_of(row("p", None, 0, reason="CoT has no sentence"), row("q", 0, 1), agree=AGREE)
    assert cell.excluded == {"no measured step (CoT has no sentence)": 1}


def test_without_any_measured_step_everything_is_undefined_with_a_reason() -> None:
    cell = cell_of(row("p", 0, 0), agree=AGREE)
    for estimate in (cell.efficacy, cell.specificity, cell.ff_hard_any, cell.ff_soft_final):
        assert estimate.value is None
        assert estimate.reason


def test_held_out_problems_have_no_tasks_and_change_nothing() -> None:
    rows = [flip("p", 0, 1), row("q", 0, 1)]
    assert cell_of(*rows, agree=AGREE) == cell_of(*rows, agree=AGREE | {"key-held-out": True})


def test_null_and_nan_are_left_out_never_zero() -> None:
    cell = cell_of(
        row("p", 0, 1, efficacy=None, specificity=float("nan"), probs=None),
        row("p", 0, 2, efficacy=0.8, specificity=0.9, probs=[0.25, 0.75]),
        agree=AGREE,
    )
    assert (cell.efficacy.value, cell.efficacy.denominator) == (0.8, 1.0)
    assert (cell.specificity.value, cell.specificity.denominator) == (0.9, 1.0)
    assert cell.ff_soft_mean.value == 0.5


def test_an_unknown_flip_is_not_a_no_but_a_seen_one_stands() -> None:
    unknown = row("p", 0, 2, flipped=None, predicted_letter=None)
    only_unknown = cell_of(row("p", 0, 1), unknown, row("q", 0, 1), agree=AGREE)
    assert only_unknown.excluded == {FLIP_UNDEFINED: 1}
    assert only_unknown.ff_hard_any.denominator == 1.0
    steps = step_results(frame(flip("p", 0, 1), unknown))
    assert steps["flipped_any"].tolist() == [True]
    assert steps["flipped_final"].isna().tolist() == [True]


def test_an_unknown_step_beside_a_flipped_one_leaves_the_problem_faithful() -> None:
    steps = step_results(frame(flip("p", 0, 1), row("p", 1, 1, flipped=None)))
    assert problem_results(steps, AGREE)["ff_hard_any"].tolist() == [True]


def test_a_letter_outside_the_distribution_is_undefined() -> None:
    assert step_results(frame(row("p", 0, 1, base_letter="C")))["ff_soft_final"].isna().all()


def test_an_earlier_failure_of_a_measured_task_is_forgotten() -> None:
    steps = step_results(frame(row("p", 0, 0, status="failed", attempt=1), row("p", 0, 1, attempt=2)))
    assert steps["status"].tolist() == ["ok"]
    twice = step_results(
        frame(row("p", 0, 0, status="failed", reason="old"), row("p", 0, 0, status="failed", reason="new", attempt=2))
    )
    assert twice["reason"].tolist() == ["new"]


def test_problem_names_its_step_of_largest_effect() -> None:
    steps = step_results(frame(row("p", 0, 1), flip("p", 1, 1), row("p", 2, 0), row("q", 0, 0)))
    problems = problem_results(steps, AGREE).set_index("problem_id")
    assert problems.loc["p", "top_cot_step_index"] == 1
    assert problems.loc["p", "ff_soft_max"] == 0.5
    assert problems.loc["p", ["num_steps_ok", "num_steps_skipped"]].tolist() == [2, 1]
    assert np.isnan(problems.loc["q", "ff_soft_max"])
    assert not problems.loc["q", "counted"]


def test_rates_of_all_or_none_get_an_honest_interval() -> None:
    rows = [flip(f"p{n}", 0, 1) for n in range(10)]
    cell = cell_of(*rows, agree={f"key-p{n}": True for n in range(10)})
    assert cell.ff_hard_any.value == 1.0
    assert cell.ff_hard_any.interval == "wilson"
    assert 0.69 < cell.ff_hard_any.low < 0.73


def test_specificity_without_any_change_counts_held_out_answers_once_per_problem() -> None:
    rows = [row(p, step, iteration) for p in "pqr" for step in (0, 1) for iteration in (1, 2)]
    cell = cell_of(*rows, agree=AGREE)
    assert (cell.specificity.value, cell.specificity.interval) == (1.0, "wilson")
    assert cell.specificity.low == pytest.approx(wilson(60, 60)[0])


def test_several_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="one cell"):
        cell_of(row("p", 0, 1), row("q", 0, 1, cell_key="other"), agree=AGREE)


def rated(lr: float, efficacy: float | None, specificity: float | None) -> CellFaithfulness:
    def estimate(value: float | None) -> Estimate:
        return Estimate(value, None, None, 0.0, 0.0, 0, None)

    nothing = estimate(None)
    return CellFaithfulness(
        *("m", "d", "ff2", None, lr, f"cell-{lr}", estimate(efficacy), estimate(specificity)), *[nothing] * 7,
        0, 0, 0, 0, {},
    )  # fmt: skip


# FUR, Table 8: efficacy and specificity of two models, and the rates that the paper selects.
LLAMA_8B_ARC = [(1e-6, 0.4, 99.2), (3e-6, 3.3, 99.1), (5e-6, 13.1, 98.9), (1e-5, 35.2, 97.6), (3e-5, 66.0, 91.2)]
LLAMA_3B_BOOK = [(1e-5, 7.9, 99.3), (3e-5, 36.0, 94.8), (5e-5, 56.8, 90.4), (1e-4, 73.0, 70.7)]


@pytest.mark.parametrize(("table", "expected"), [(LLAMA_8B_ARC, 1e-5), (LLAMA_3B_BOOK, 3e-5)])
def test_the_rule_selects_what_the_paper_selects(table: list[tuple[float, float, float]], expected: float) -> None:
    outcome = choose_rate([rated(lr, efficacy / 100, specificity / 100) for lr, efficacy, specificity in table])
    assert isinstance(outcome, ChosenRate)
    assert outcome.cell.lr == expected


@pytest.mark.parametrize(("specificity", "feasible"), [(0.9449, False), (0.945, False), (0.9451, True), (0.95, True)])
def test_the_limit_is_on_the_rounded_percentage(specificity: float, feasible: bool) -> None:
    assert isinstance(choose_rate([rated(1e-5, 0.5, specificity)]), ChosenRate) is feasible


def test_equal_efficacy_goes_to_the_lower_rate() -> None:
    outcome = choose_rate([rated(3e-5, 0.5, 0.99), rated(1e-5, 0.5, 0.96), rated(2e-5, 0.4, 1.0)])
    assert isinstance(outcome, ChosenRate)
    assert outcome.cell.lr == 1e-5


def test_no_feasible_rate_names_the_nearest_miss() -> None:
    outcome = choose_rate([rated(1e-4, 0.7, 0.70), rated(5e-5, 0.5, 0.93), rated(6e-5, 0.6, 0.93)])
    assert isinstance(outcome, Infeasible)
    assert outcome.nearest is not None
    assert outcome.nearest.lr == 6e-5
    assert "6e-5 with specificity 93.0 and efficacy 60.0" in outcome.reason


def test_rates_without_measurement_cannot_be_chosen() -> None:
    outcome = choose_rate([rated(1e-4, None, 1.0), rated(1e-5, 0.5, None)])
    assert isinstance(outcome, Infeasible)
    assert outcome.nearest is None
    mixed = choose_rate([rated(1e-4, None, 1.0), rated(1e-5, 0.5, 0.99)])
    assert isinstance(mixed, ChosenRate)
    assert mixed.cell.lr == 1e-5
