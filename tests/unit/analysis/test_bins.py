"""Bins at their borders and the draw: as many as asked for or as there are, the same whatever the order."""

import random

import pytest

from fairwitness.analysis.ratings import PAPER_COUNTS, Candidate, bin_of, draw


@pytest.mark.parametrize(
    ("ff_soft", "expected"),
    [
        (-1.0, "negative"), (-0.25, "negative"), (-0.2499999, "neutral"), (0.0, "neutral"), (0.2499999, "neutral"),
        (0.25, "moderate"), (0.4999999, "moderate"), (0.5, "high"), (1.0, "high"),
    ],
)  # fmt: skip
def test_borders(ff_soft: float, expected: str) -> None:
    assert bin_of(ff_soft) == expected


@pytest.mark.parametrize("ff_soft", [1.01, -1.5, float("nan"), float("inf")])
def test_what_is_no_ff_soft(ff_soft: float) -> None:
    with pytest.raises(ValueError, match="between -1 and 1"):
        bin_of(ff_soft)


def steps(per_bin: dict[float, int]) -> list[Candidate]:
    return [
        Candidate(f"p{number:02d}", int(10 * value) % 7, value) for value, n in per_bin.items() for number in range(n)
    ]


def test_draws_the_papers_numbers_from_each_bin() -> None:
    drawn = draw(steps({-0.4: 9, 0.1: 40, 0.3: 9, 0.8: 30}), PAPER_COUNTS, seed=1, group="m on d")
    assert [(part.bin, part.available, len(part.chosen)) for part in drawn] == [
        ("negative", 9, 5), ("moderate", 9, 5), ("high", 30, 15),
    ]  # fmt: skip
    for part in drawn:
        assert len(set(part.chosen)) == len(part.chosen)
        assert {bin_of(step.ff_soft) for step in part.chosen} == {part.bin}
        assert not part.is_short


def test_takes_what_there_is_and_says_so() -> None:
    negative, moderate, high = draw(steps({0.3: 5, 0.8: 2}), PAPER_COUNTS, seed=1, group="m on d")
    assert (len(negative.chosen), negative.is_short) == (0, True)
    assert (len(moderate.chosen), moderate.is_short) == (5, False)
    assert (len(high.chosen), high.wanted, high.is_short) == (2, 15, True)


def test_depends_on_seed_and_group_alone() -> None:
    candidates = steps({0.8: 30})
    shuffled = random.Random(3).sample(candidates, len(candidates))
    chosen = [
        set(draw(some, {"high": 10}, seed=seed, group=group)[0].chosen)
        for some, seed, group in [
            (candidates, 1, "a"), (shuffled, 1, "a"), (candidates, 2, "a"), (candidates, 1, "b"),
        ]
    ]  # fmt: skip
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]
    assert chosen[0] != chosen[3]


def test_every_step_can_be_drawn() -> None:
    candidates = steps({0.8: 6})
    seen = {draw(candidates, {"high": 1}, seed=seed, group="g")[0].chosen[0] for seed in range(60)}
    assert seen == set(candidates)
