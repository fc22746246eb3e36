"""The draw of measured and held-out problems."""

import pytest

from fairwitness.errors import DataError
from fairwitness.problems.load import Selection, select
from fairwitness.problems.problem import Problem
from fairwitness.problems.records import LoadedProblems, Refused


def loaded(number: int, *, backwards: bool = False, refused: tuple[Refused, ...] = ()) -> LoadedProblems:
    problems = [Problem(f"p{index}", "Which?", ("x", "y"), None, "made") for index in range(number)]
    return LoadedProblems("made", "", tuple(reversed(problems) if backwards else problems), refused, "r")


def ids(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.problem_id for problem in problems]


def drawn(number: int = 60, *, num_problems: int | None = 10, num_held_out: int = 20, seed: int = 1) -> Selection:
    return select(loaded(number), num_problems=num_problems, num_held_out=num_held_out, seed=seed)


def test_the_two_draws_are_disjoint_and_of_the_size_asked_for() -> None:
    selection = drawn()
    assert (len(selection.measured), len(selection.held_out)) == (10, 20)
    assert not set(ids(selection.measured)) & set(ids(selection.held_out))


def test_without_a_number_all_others_are_measured() -> None:
    assert len(drawn(num_problems=None).measured) == 40


def test_the_order_of_the_source_does_not_matter() -> None:
    forwards = select(loaded(60), num_problems=10, num_held_out=20, seed=1)
    assert select(loaded(60, backwards=True), num_problems=10, num_held_out=20, seed=1) == forwards


def test_more_problems_add_to_the_draw_and_leave_the_held_out_alone() -> None:
    few, many = drawn(num_problems=5), drawn(num_problems=30)
    assert ids(many.measured)[:5] == ids(few.measured)
    assert many.held_out == few.held_out


def test_another_seed_draws_others() -> None:
    assert drawn(seed=2) != drawn(seed=1)


def test_a_draw_covers_the_set_evenly() -> None:
    counts = dict.fromkeys(ids(loaded(30).problems), 0)
    for seed in range(200):
        for name in ids(drawn(30, num_problems=9, num_held_out=1, seed=seed).measured):
            counts[name] += 1
    assert sum(counts.values()) == 1800
    assert 30 < min(counts.values()) <= max(counts.values()) < 95


def test_exactly_enough_is_enough() -> None:
    assert len(drawn(21, num_problems=None).measured) == 1
    assert len(drawn(30).measured) == 10


@pytest.mark.parametrize(
    ("number", "num_problems", "message"),
    [
        (
            15,
            5,
            r"made: 15 problems are too few for 20 held-out problems and 5 to measure; .*num_held_out to at most 10$",
        ),
        (25, 10, r"num_held_out to at most 15, or set num_problems to at most 5$"),
        (20, None, r"and at least one to measure; .*num_held_out to at most 19$"),
        (25, 100, r"larger data set, or set num_problems to at most 5$"),
        (1, 3, r"made: 1 problems are too few .*give a larger data set$"),
    ],
)
def test_too_few_problems_say_how_many_there_are_and_what_to_set(
    number: int, num_problems: int | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        drawn(number, num_problems=num_problems)


def test_the_message_counts_refused_records() -> None:
    refused = (Refused("set.jsonl", 1, "", "is not valid JSON", 1),)
    with pytest.raises(DataError, match=r"3 problems \(1 records were refused\)"):
        select(loaded(3, refused=refused), num_problems=1, num_held_out=20, seed=0)
