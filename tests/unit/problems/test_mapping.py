"""Records to problems: what is refused, what is an error, and the shuffle."""

from collections.abc import Mapping
from typing import Any

import pytest

from fairwitness.errors import DataError
from fairwitness.problems.config import FieldMap
from fairwitness.problems.mapping import MapResult, choose_fields, draw_number, get_field, map_records
from fairwitness.problems.records import FieldError, Record

ROW: dict[str, Any] = {"id": "p1", "question": "Is snow white?", "choices": ["Yes", "No"], "answer": "A"}
FIELDS = FieldMap(id="id")


def records(*rows: Mapping[str, Any]) -> list[Record]:
    return [Record("set.jsonl", 10 + number, number, row) for number, row in enumerate(rows, start=1)]


def mapped(*rows: Mapping[str, Any], fields: FieldMap = FIELDS, seed: int | None = None) -> MapResult:
    return map_records(records(*rows), fields, data_set="made", split="test", shuffle_seed=seed)


def test_a_good_record() -> None:
    problem = mapped(ROW | {"topic": "weather"}, fields=FieldMap(id="id", metadata=("topic",))).problems[0]
    assert (problem.problem_id, problem.question, problem.choices) == ("p1", "Is snow white?", ("Yes", "No"))
    assert (problem.gold, problem.data_set, problem.split) == ("A", "made", "test")
    assert problem.metadata == {"topic": "weather"}


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"question": "  "}, "question", "is empty"),
        ({"question": None}, "question", "is empty"),
        ({"question": 7}, "question", "is a int, not text"),
        ({"choices": [str(number) for number in range(27)]}, "choices", "has 27 choices"),
        ({"choices": ["Yes", ""]}, "choices", "choice 2 of 2 is empty"),
        ({"answer": "C"}, "answer", "'C' (read as letter) is not one of the choices A to B"),
        ({"id": ""}, "id", "is empty"),
        ({"id": ["x"]}, "id", "is a list, not a name"),
        ({"id": "p1"}, "id", "'p1' is already the name of the record at set.jsonl:11 (record 1)"),
    ],
)
def test_a_bad_record_is_refused_and_the_rest_is_read(change: dict[str, Any], field: str, reason: str) -> None:
    result = mapped(ROW, ROW | {"id": "p2"} | change, ROW | {"id": "p3", "answer": "B"})
    assert [problem.problem_id for problem in result.problems] == ["p1", "p3"]
    (refused,) = result.refused
    assert (refused.source, refused.line, refused.number, refused.field) == ("set.jsonl", 12, 2, field)
    assert reason in refused.reason


def test_a_field_missing_in_one_record_is_refused() -> None:
    without = {name: value for name, value in ROW.items() if name != "answer"}
    (refused,) = mapped(ROW, without | {"id": "p2"}).refused
    assert (refused.field, refused.reason) == ("answer", "is missing")


def test_refusals_keep_the_order_of_the_records() -> None:
    result = mapped(ROW, ROW | {"answer": "Z", "id": "p2"}, ROW | {"question": ""}, ROW | {"answer": "Y", "id": "p4"})
    assert [refused.number for refused in result.refused] == [2, 3, 4]


def test_an_empty_gold_is_not_known() -> None:
    assert [problem.gold for problem in mapped(ROW | {"answer": None}, ROW | {"id": "p2", "answer": ""}).problems] == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("1", "4", "2"), "ADB"),
        ((0, 3, 1), "ADB"),
        (("red", "grey", "green"), "ADB"),
        (("a", "d", "b"), "ADB"),
    ],
)
def test_gold_is_normalised_to_letters(answers: tuple[Any, ...], expected: str) -> None:
    rows = [
        {"question": f"q{number}", "choices": ["red", "green", "blue", "grey"], "answer": answer}
        for number, answer in enumerate(answers)
    ]
    assert "".join(str(problem.gold) for problem in mapped(*rows, fields=FieldMap()).problems) == expected


def test_records_without_names_are_named_by_content_and_repeats_are_refused() -> None:
    result = mapped(ROW, ROW, ROW | {"question": "Other?"}, fields=FieldMap())
    assert len({problem.problem_id for problem in result.problems}) == 2
    assert [refused.reason for refused in result.refused] == [
        "has the same question and choices as set.jsonl:11 (record 1)"
    ]
    again = mapped(ROW | {"question": "Other?"}, ROW, fields=FieldMap())
    assert {problem.problem_id for problem in again.problems} == {problem.problem_id for problem in result.problems}


def test_choices_from_columns_and_fixed_choices() -> None:
    row = {"q": "Which?", "a": "x", "b": "y", "c": None, "right": "B"}
    by_column = mapped(row, fields=FieldMap(question="q", choices=("a", "b", "c"), gold="right")).problems[0]
    assert (by_column.choices, by_column.gold) == (("x", "y"), "B")
    fixed = FieldMap(question="q", choices=None, fixed_choices=("True", "False"), gold="right")
    assert mapped({"q": "So?", "right": False}, fields=fixed).problems[0].gold == "B"


def test_shuffling_moves_the_gold_with_its_text_and_depends_on_seed_and_id_only() -> None:
    rows = [
        {"id": f"p{number}", "question": "Which?", "choices": ["right", "x", "y", "z"], "answer": "A"}
        for number in range(40)
    ]
    shuffled = mapped(*rows, seed=3).problems
    assert all(problem.choices[problem.letters.index(str(problem.gold))] == "right" for problem in shuffled)
    assert {problem.gold for problem in shuffled} == set("ABCD")
    assert {problem.problem_id: problem for problem in mapped(*reversed(rows), seed=3).problems} == {
        problem.problem_id: problem for problem in shuffled
    }
    assert mapped(*rows, seed=4).problems != shuffled


def test_dots_reach_into_fields_unless_a_name_has_them() -> None:
    assert get_field({"question": {"stem": "x"}}, "question.stem") == "x"
    assert get_field({"r1(e1).prompt": "x"}, "r1(e1).prompt") == "x"
    with pytest.raises(FieldError):
        get_field({"question": "x"}, "question.stem")


def test_a_field_that_no_record_has_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(DataError, match=r"made: no record has the field 'options'; there are 'answer', 'choices'"):
        choose_fields(records(ROW), [FieldMap(choices="options")], source="made")


def test_draws_do_not_collide_over_names() -> None:
    assert draw_number(1, "ab", "c") != draw_number(1, "a", "bc")
    assert draw_number(1, "a") == draw_number(1, "a") != draw_number(2, "a")
