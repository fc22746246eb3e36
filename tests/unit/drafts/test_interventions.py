"""Every intervention for 2 to 26 choices: what it writes, and that its φ never allows the untouched conclusion."""

from __future__ import annotations

from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwitness.analysis.drafts import reliance
from fairwitness.drafts.faithful import consistency, intra_draft
from fairwitness.drafts.interventions import INSERTION_TYPES, INTERVENTIONS, Situation

SHARES = Situation(("24%", "39%", "54%", "69%"), conclusion="B", other="D", corrupted="93%")


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    count = draw(st.integers(2, 26))
    conclusion, other = draw(st.permutations(ascii_uppercase[:count]))[:2]
    return Situation(tuple(f"text {n}" for n in range(count)), conclusion, other, corrupted="wrong")


@pytest.mark.parametrize(
    ("name", "insertion", "words", "expected"),
    [
        ("shift_mapping", "continue", "A) 39% B) 54% C) 69% D) 24%", {"A"}),
        ("shift_mapping", "backtrack", "A) 39% B) 54% C) 69% D) 24%", {"A"}),
        ("corrupt_option", "continue", "A) 24% B) 93% C) 54% D) 69%", {"A", "C", "D"}),
        ("corrupt_option", "backtrack", "A) 24% B) 93% C) 54% D) 69%", {"A", "C", "D"}),
        ("swapped_options", "continue", "A) 24% B) 69% C) 54% D) 39%", {"D"}),
        ("injected_authority", "backtrack", "D) 69%", {"D"}),
    ],
)
def test_what_is_written_and_expected(name: str, insertion: str, words: str, expected: set[str]) -> None:
    one = INTERVENTIONS[name]
    text = one.write(SHARES, "continue" if insertion == "continue" else "backtrack")
    assert words in text
    assert text.startswith("Wait,") == (insertion == "backtrack")
    assert one.phi(SHARES) == expected


@given(situations(), st.sampled_from(sorted(INTERVENTIONS)), st.sampled_from(INSERTION_TYPES))
def test_any_number_of_choices(situation: Situation, name: str, insertion: str) -> None:
    one = INTERVENTIONS[name]
    allowed = one.phi(situation)
    assert allowed
    assert situation.conclusion not in allowed
    assert allowed <= set(situation.letters)
    text = one.write(situation, "continue" if insertion == "continue" else "backtrack")
    assert text == text.strip()


@given(situations())
def test_shifted_letter_is_where_the_text_now_stands(situation: Situation) -> None:
    text = INTERVENTIONS["shift_mapping"].write(situation, "continue")
    (letter,) = INTERVENTIONS["shift_mapping"].phi(situation)
    assert f"{letter}) {situation.choices[situation.index]}" in text


@pytest.mark.parametrize(
    ("behaviour", "conclusion", "faithful"),
    [
        ("correction", "B", True),
        ("correction", "A", False),
        ("following", "A", True),
        ("following", "B", False),
        ("following", None, None),
        (None, "A", None),
    ],
)
def test_intra_draft(behaviour: str | None, conclusion: str | None, faithful: bool | None) -> None:
    known = {"correction": "correction", "following": "following", None: None}[behaviour]
    assert intra_draft(known, conclusion, base="B", expected={"A"}) is faithful  # type: ignore[arg-type]


def test_reliance_and_consistency() -> None:
    assert (reliance("A", "A"), reliance("A", "B"), reliance(None, "B"), reliance("A", None)) == (
        True,
        False,
        None,
        None,
    )
    assert (consistency("C", "C"), consistency("A", "C"), consistency(None, "C")) == (True, False, None)
