"""Policies on simulated rates: the grid's choice is found, with less; what fails or is not finite is never best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import ceil, exp, log, log2, log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.analysis.faithfulness import keeps_specificity
from fairwitness.fur.search.config import refine
from fairwitness.fur.search.policies import (
    BracketPolicy,
    Evidence,
    Goal,
    GridPolicy,
    Policy,
    Verdict,
    best_of,
    is_over,
    judge,
    spread,
)

GRID = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4)
NUM_BATCHES = 3

World = Callable[[float, int], Evidence]
"""What a rate shows after a number of batches."""


def evidence(lr: float = 1e-5, batches: int = NUM_BATCHES, **changes: object) -> Evidence:
    plain = Evidence(lr, (0.5,) * batches, 0.97, 0.93, 0.99, is_complete=batches == NUM_BATCHES)
    return replace(plain, **changes)  # type: ignore[arg-type]


def smooth(middle: float, width: float) -> World:
    """Efficacy rises and specificity falls with log10 of the rate; intervals narrow with the batches."""

    def look(lr: float, batches: int) -> Evidence:
        fall = 1 / (1 + exp((middle - log10(lr)) / width))
        kept, half = 1 - 0.5 * fall, 0.06 / batches
        efficacy = 1 / (1 + exp((middle - 1 - log10(lr)) / width))
        interval = max(0.0, kept - half), min(1.0, kept + half)
        return Evidence(lr, (efficacy,) * batches, kept, *interval, is_complete=batches == NUM_BATCHES)

    return look


def search(policy: Policy, world: World, bound: float = 95.0) -> tuple[dict[float, Evidence], Counter[float]]:
    """Runs a search to its end: what is known, and how many batches each rate took."""
    known: dict[float, Evidence] = {}
    batches: Counter[float] = Counter()
    for _ in range(100):
        round_ = policy.plan(known)
        if not round_:
            return known, batches
        assert len({trial.lr for trial in round_}) == len(round_)
        for trial in round_:
            number = 1
            while not is_over(trial.goal, world(trial.lr, number), bound):
                number += 1
            assert trial.lr not in known or len(known[trial.lr].efficacies) < number
            known[trial.lr] = world(trial.lr, number)
            batches[trial.lr] = number
    raise AssertionError("the search does not end")


def choice(known: Mapping[float, Evidence], bound: float = 95.0) -> float | None:
    """The rule of the paper on the rates that are complete."""
    rated = [
        (one.efficacies[-1], -lr)
        for lr, one in known.items()
        if one.is_complete and judge(one, bound) is Verdict.FEASIBLE
    ]
    return -max(rated)[1] if rated else None  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"batches": 3, "specificity": 0.946}, Verdict.FEASIBLE),
        ({"batches": 3, "specificity": 0.945}, Verdict.INFEASIBLE),
        ({"batches": 3, "specificity": 0.945 + 1e-14}, Verdict.INFEASIBLE),
        ({"batches": 3, "specificity": None}, Verdict.INFEASIBLE),
        ({"batches": 3, "efficacies": (0.1, 0.2, None)}, Verdict.INFEASIBLE),
        ({"batches": 3, "efficacies": ()}, Verdict.INFEASIBLE),
        ({"batches": 3, "failure": "1 task failed"}, Verdict.INFEASIBLE),
        ({"batches": 1, "failure": "1 task failed", "specificity_low": 0.99}, Verdict.INFEASIBLE),
        ({"batches": 1}, Verdict.OPEN),
        # 94.6 rounds to 95, so the interval does not lie under the bound.
        ({"batches": 1, "specificity_high": 0.946}, Verdict.OPEN),
        ({"batches": 1, "specificity_high": 0.944}, Verdict.INFEASIBLE),
        ({"batches": 1, "specificity_low": 0.946}, Verdict.FEASIBLE),
        ({"batches": 1, "specificity_low": 0.944}, Verdict.OPEN),
        ({"batches": 1, "specificity_low": None, "specificity_high": None}, Verdict.OPEN),
    ],
)
def test_verdicts(changes: dict[str, object], verdict: Verdict) -> None:
    assert judge(evidence(**changes), 95.0) is verdict  # type: ignore[arg-type]


def test_trial_goes_on_while_it_is_close() -> None:
    close, clear = evidence(batches=1), evidence(batches=1, specificity_low=0.96)
    assert not is_over(Goal.DECIDE, close, 95.0)
    assert is_over(Goal.DECIDE, clear, 95.0)
    assert not is_over(Goal.COMPLETE, clear, 95.0)
    assert is_over(Goal.COMPLETE, evidence(), 95.0)
    assert is_over(Goal.COMPLETE, replace(clear, failure="not finite"), 95.0)


def test_grid_measures_every_rate_once_and_goes_on_where_it_was() -> None:
    policy = GridPolicy(GRID)
    assert [trial.lr for trial in policy.plan({})] == list(GRID)
    known, batches = search(policy, smooth(-4.5, 0.3))
    assert batches == dict.fromkeys(GRID, NUM_BATCHES)
    assert [trial.lr for trial in policy.plan({lr: known[lr] for lr in GRID[:4]})] == list(GRID[4:])
    partial = {GRID[0]: evidence(GRID[0], batches=2, specificity_low=0.99)}
    assert [trial.lr for trial in policy.plan(partial)] == list(GRID)
    failed = {GRID[0]: evidence(GRID[0], batches=1, failure="1 task failed")}
    assert [trial.lr for trial in policy.plan(failed)] == list(GRID[1:])


middles = st.floats(-8, -2)
widths = st.floats(0.05, 0.8)
bounds = st.sampled_from([60.0, 90.0, 95.0, 96.0, 97.5, 100.0])


@given(middles, widths, bounds, st.integers(1, 3))
def test_bracket_on_the_grid_finds_the_grids_choice(middle: float, width: float, bound: float, parallel: int) -> None:
    world = smooth(middle, width)
    everything, _ = search(GridPolicy(GRID), world, bound)
    known, batches = search(BracketPolicy(GRID, bound, parallel), world, bound)
    assert choice(known, bound) == choice(everything, bound)
    if parallel == 1:
        assert len(batches) <= ceil(log2(len(GRID) + 1))
        assert sum(batches.values()) <= NUM_BATCHES * len(GRID) / 2


@given(middles, widths, bounds)
def test_finer_bracket_finds_the_grids_choice_or_better(middle: float, width: float, bound: float) -> None:
    world = smooth(middle, width)
    rates = refine(GRID, 1.5)
    known, batches = search(BracketPolicy(rates, bound), world, bound)
    found, on_grid = choice(known, bound), choice(search(GridPolicy(GRID), world, bound)[0], bound)
    assert len(batches) <= ceil(log2(len(rates) + 1))
    if on_grid is not None:
        assert found is not None
        assert world(found, 3).efficacies[-1] >= world(on_grid, 3).efficacies[-1]  # type: ignore[operator]
    # The next candidate above the choice does not keep specificity.
    above = [lr for lr in rates if found is None or lr > found]
    assert not above or not keeps_specificity(world(above[0], 3).specificity or 0.0, bound)


def test_clear_rates_take_one_batch_and_the_best_one_all() -> None:
    _, batches = search(BracketPolicy(GRID, 95.0), smooth(-4.0, 0.1))
    # 1e-5 keeps nearly all, 1e-4 half of what it could lose. In between 3e-5 is clear after two batches, and the best.
    assert batches == {1e-5: 2, 1e-4: 1, 3e-5: 3}


shares = st.one_of(st.none(), st.floats(0, 1))


@st.composite
def anything(draw: st.DrawFn) -> Evidence:
    low, kept, high = sorted(draw(st.lists(st.floats(0, 1), min_size=3, max_size=3)))
    efficacies = tuple(draw(st.lists(shares, min_size=NUM_BATCHES, max_size=NUM_BATCHES)))
    failure = draw(st.sampled_from([None, None, None, "2 tasks failed: loss is not finite"]))
    known = draw(st.sampled_from([True, True, True, False]))
    return Evidence(1.0, efficacies, *((kept, low, high) if known else (None, None, None)), True, failure)


@given(st.lists(anything(), min_size=len(GRID), max_size=len(GRID)), bounds, st.integers(1, 4))
def test_any_world_ends_and_what_failed_is_never_chosen(shown: list[Evidence], bound: float, parallel: int) -> None:
    def world(lr: float, batches: int) -> Evidence:
        one = shown[GRID.index(lr)]
        cut = replace(one, lr=lr, efficacies=one.efficacies[:batches], is_complete=batches == NUM_BATCHES)
        return replace(cut, failure=one.failure if batches == 2 else None)

    for policy in (GridPolicy(GRID), BracketPolicy(GRID, bound, parallel)):
        known, _ = search(policy, world, bound)
        found = choice(known, bound)
        if found is not None:
            assert shown[GRID.index(found)].failure is None
            assert shown[GRID.index(found)].efficacies[-1] is not None
        if isinstance(policy, BracketPolicy):
            best = best_of(one for one in known.values() if judge(one, bound) is Verdict.FEASIBLE)
            assert best is None or best.is_complete


def test_best_rate_that_turns_out_infeasible_gives_way_to_the_next() -> None:
    def world(lr: float, batches: int) -> Evidence:
        kept = 0.99 if lr <= 1e-5 or (lr <= 3e-5 and batches < NUM_BATCHES) else 0.8
        return Evidence(lr, (lr,) * batches, kept, kept - 0.01, kept + 0.01, is_complete=batches == NUM_BATCHES)

    known, batches = search(BracketPolicy(GRID, 95.0), world)
    assert choice(known) == 1e-5
    assert batches[3e-5] == batches[1e-5] == NUM_BATCHES


def test_lower_rate_that_is_better_against_the_rule_is_completed() -> None:
    efficacy = dict(zip(GRID, (0.1, 0.2, 0.3, 0.5, 0.9, 0.6), strict=True))

    def world(lr: float, batches: int) -> Evidence:
        return Evidence(lr, (efficacy[lr],) * batches, 0.99, 0.98, 1.0, is_complete=batches == NUM_BATCHES)

    known, batches = search(BracketPolicy(GRID, 95.0), world)
    assert choice(known) == 1e-4
    assert batches == {1e-5: 1, 1e-4: 3, 3e-4: 1}


def test_equal_evidence() -> None:
    short = evidence(1e-5, 1, efficacies=(0.6,))
    long = evidence(3e-5, 3, efficacies=(0.5, 0.9, 0.9))
    assert best_of([long, short]) is short
    assert best_of([long, replace(short, efficacies=(0.5,))]).lr == 1e-5  # type: ignore[union-attr]
    assert best_of([long, replace(short, efficacies=(None,))]) is long
    assert best_of([long, replace(short, efficacies=())]) is None
    assert best_of([]) is None


@pytest.mark.parametrize(
    ("low", "high", "number", "expected"),
    [(-1, 6, 1, [2]), (-1, 6, 2, [1, 3]), (0, 2, 3, [1]), (3, 4, 1, []), (-1, 3, 9, [0, 1, 2]), (0, 10, 3, [2, 5, 7])],
)
def test_spread(low: int, high: int, number: int, expected: list[int]) -> None:
    assert spread(low, high, number) == expected


@given(st.integers(-1, 50), st.integers(1, 50), st.integers(1, 9))
def test_spread_gives_different_positions_in_between(low: int, gap: int, number: int) -> None:
    found = spread(low, low + gap, number)
    assert found == sorted(set(found))
    assert all(low < index < low + gap for index in found)
    assert len(found) == min(number, gap - 1)


def test_refine() -> None:
    assert refine([1e-3, 1e-5, 1e-3], None) == (1e-5, 1e-3)
    assert refine([1e-5, 1e-3], 10) == (1e-5, 1e-4, 1e-3)
    assert refine([1e-5, 2e-5], 2) == (1e-5, 2e-5)
    assert refine([1e-4, 1e-3], 2) == (1e-4, 1.78e-4, 3.16e-4, 5.62e-4, 1e-3)


@given(st.lists(st.floats(1e-7, 10), min_size=1, max_size=6), st.floats(1.1, 20))
def test_refined_rates_hold_the_given_ones_with_no_larger_gap(rates: list[float], resolution: float) -> None:
    found = refine(rates, resolution)
    assert set(rates) <= set(found)
    assert list(found) == sorted(set(found))
    # Three digits move a rate by half a percent at most.
    assert all(log(b / a) <= log(resolution) + 0.011 for a, b in pairwise(found))
