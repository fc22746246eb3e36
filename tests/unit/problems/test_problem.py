"""The problem refuses what cannot be asked."""

import pickle

import pytest

from fairwitness.problems.problem import Problem


def problem(**changes: object) -> Problem:
    given: dict[str, object] = {
        "problem_id": "1",
        "question": "Is snow white?",
        "choices": ("Yes", "No"),
        "gold": "A",
        "data_set": "made",
    }
    return Problem(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": " "}, "question is empty"),
        ({"choices": ("Yes",)}, "1 given"),
        ({"choices": tuple(map(str, range(27))), "gold": None}, "27 given"),
        ({"choices": ("Yes", "")}, "choice B is empty"),
        ({"gold": "C"}, "gold letter 'C'"),
    ],
)
def test_bad_values_are_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        problem(**changes)


def test_twenty_six_choices_and_no_gold_are_fine() -> None:
    widest = problem(choices=tuple(map(str, range(26))), gold=None)
    assert widest.letters[-1] == "Z"


def test_a_problem_crosses_processes() -> None:
    assert pickle.loads(pickle.dumps(problem())) == problem()
