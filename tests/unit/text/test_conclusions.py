"""Conclusions read by rules: marked-up letters, articles, choices that contain one another, other scripts, denials."""

from __future__ import annotations

from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.text.conclusions import choice_named, find_conclusion

SHARES = ("24%", "39%", "54%", "69%")
ANIMALS = ("bird", "cat", "cat fish", "none of the above")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is B", "B"),
        ("The answer is: B", "B"),
        ("The correct answer is **B**.", "B"),
        ("The answer is $B$.", "B"),
        (r"So \boxed{B}", "B"),
        (r"So \boxed{\text{(C)}}.", "C"),
        (r"Thus \[ \boxed{39\%} \] hm, \boxed{39%}", "B"),
        ("the answer is (b)", "B"),
        ("The final answer should be option C) 54%.", "C"),
        ("I'll go with B) 39% as the most plausible answer.", "B"),
        ("I think the answer is 54%, not 69%.", "C"),
        ("Final Answer:\n\n**D**", "D"),
        ("Answer: (A)", "A"),
        ("A) 24% is the correct answer. The survey says so.", "A"),
        ("So B is the most likely choice.", "B"),
        ("Therefore (c) is correct.", "C"),
        ("Option **C** is the best answer", "C"),
        ("The answer is A. No: 39% is the right one.", "B"),
        ("I checked twice.\n2. D) 69% must be the final answer", "D"),
        ("The answer is A because of the survey.", "A"),
        ("Maybe the answer is A. Wait, no: the answer is D.", "D"),
        ("The answer is A. But the answer is not B.", "A"),
        ("B is wrong. The answer is C, since A is wrong too.", "C"),
        ("It has to be 24%.", "A"),
        ("After all that\nB", "B"),
        ("After all that\n(b) 39%", "B"),
        ("Therefore, D", "D"),
        ("答案是B。", "B"),
        ("答案：Ｃ", "C"),
        ("La respuesta es la... La respuesta correcta es B.", "B"),
        ("Die richtige Antwort ist C.", "C"),
        ("Ответ: D", "D"),
        ("答えは A です", "A"),
    ],
)
def test_stated_conclusions(text: str, letter: str) -> None:
    found = find_conclusion(text, SHARES)
    assert found is not None
    assert found.letter == letter


@pytest.mark.parametrize("blanks", [" " * 100_000, "\n" * 100_000, " \n\t" * 50_000])
def test_long_stretches_of_blanks_do_not_matter(blanks: str) -> None:
    found = find_conclusion(f"The answer is A.{blanks}The final answer{blanks}is B.{blanks}", SHARES)
    assert found is not None
    assert found.letter == "B"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Let me check the options again: A) 24% B) 39% C) 54% D) 69%",
        "Is the answer B?",
        "I wonder whether the answer is B or C",
        "The answer is not B.",
        "The answer is unclear.",
        "The answer is a number that nobody knows.",
        "The answer is A number that nobody knows.",
        "The answer is E.",
        "If the answer is B, we would see it.",
        "The answer isn't B.",
        "The answer is B is wrong",
        "Is it true that B is the correct answer?",
        "If B is the correct answer, then the survey is wrong.",
        "B or C is the correct answer.",
        "Neither B is the answer",
        "I don't think B is the right answer.",
        "B is not the correct answer.",
        "Which of A, B and C is the best choice",
        "B is correct that few agree",
        "A survey is the best option",
    ],
)
def test_no_conclusion(text: str) -> None:
    assert find_conclusion(text, SHARES) is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is a cat.", "B"),
        ("The answer is A cat fish.", "C"),
        ("The answer is cat fish", "C"),
        ("The answer is catalogue", None),
        ("The answer is none of the above.", "D"),
        ("The answer is A bird", "A"),
        ("The answer is a dog.", None),
    ],
)
def test_choices_by_their_text(text: str, letter: str | None) -> None:
    found = find_conclusion(text, ANIMALS)
    assert (found and found.letter) == letter


def test_a_letter_beyond_the_choices_is_no_answer() -> None:
    assert find_conclusion("The answer is I think unclear", [f"text {n}" for n in range(9)]) is None
    assert find_conclusion("none of the above is the answer", SHARES) is None


def test_choices_in_another_script() -> None:
    found = find_conclusion("因此，答案是北京。", ("上海", "北京", "广州"))
    assert found is not None
    assert (found.letter, found.named) == ("B", "text")


def test_equal_choices_cannot_be_told_apart() -> None:
    assert choice_named("red", ["red", "Red"]) is None


@given(st.integers(2, 26), st.data())
def test_every_letter_is_read_in_every_notation(count: int, data: st.DataObject) -> None:
    letter = data.draw(st.sampled_from(ascii_uppercase[:count]))
    notation = data.draw(st.sampled_from(["({})", "**{}**", "${}$", r"\boxed{{{}}}", "{}", "{}.", "option {}"]))
    choices = [f"text {number:02d}" for number in range(count)]
    found = find_conclusion(f"Hence the answer is {notation.format(letter)}", choices)
    assert found is not None
    assert found.letter == letter


@pytest.mark.parametrize("count", [0, 27])
def test_too_few_or_many_choices(count: int) -> None:
    with pytest.raises(ValueError, match="letters for 1 to 26"):
        find_conclusion("B", ["x"] * count)
