"""Segmentation loses nothing and cuts where people would."""

import csv
import json
import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwitness.text.segmentation import Span, segment, segmenter_revision

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "data" / "fur_published"
NOISE = st.lists(
    st.one_of(
        st.text(max_size=8), st.sampled_from(["1.", "12. ", "\n", "\r\n", " ", "Dr. ", '."', "? ", "…", "。", "\x85"])
    )
).map("".join)


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in segment(text)]


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), NOISE))
def test_pieces_join_to_the_text_and_none_is_empty(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert all(pieces(text))


@settings(deadline=None, max_examples=200)
@given(NOISE)
def test_only_the_first_piece_begins_with_white_space(text: str) -> None:
    assert all(not piece[0].isspace() for piece in pieces(text)[1:])


def test_no_text_no_pieces_and_blank_text_one_piece() -> None:
    assert segment("") == []
    assert segment(" \n ") == [Span(0, 3)]


def test_white_space_goes_with_the_piece_before_it() -> None:
    assert pieces("  Snow is cold. Fire is hot.\n") == ["  Snow is cold. ", "Fire is hot.\n"]


def test_a_list_number_is_a_piece_of_its_own() -> None:
    assert pieces(" 1. Snow is cold.\n2. Fire is hot.") == [" 1. ", "Snow is cold.\n", "2. ", "Fire is hot."]
    assert pieces("It is so. 2. Fire is hot. 3.") == ["It is so. ", "2. ", "Fire is hot. ", "3."]


def test_a_number_that_ends_a_sentence_stays_in_it() -> None:
    assert pieces("The answer is 12. So it is 3.14 at most.") == ["The answer is 12. ", "So it is 3.14 at most."]


def test_a_line_break_ends_a_piece() -> None:
    assert pieces("So, the answer is:\n(B): No") == ["So, the answer is:\n", "(B): No"]


def test_abbreviations_and_quotes_do_not_end_a_sentence() -> None:
    text = 'Dr. Smith saw J. P. Morgan Jr. at approx. 5 p.m. in St. Louis. He said "No." She left.'
    assert pieces(text) == [
        "Dr. Smith saw J. P. Morgan Jr. at approx. 5 p.m. in St. Louis. ",
        'He said "No." ',
        "She left.",
    ]


def test_revision_names_the_package_version() -> None:
    assert re.fullmatch(r"nupunkt-\d[\w.]*-spacy-\d[\w.]*-rules-\d+", segmenter_revision())


def test_words_that_punkt_takes_for_abbreviations_end_a_sentence() -> None:
    assert pieces("A cat is a pet. Dogs bark. Mice sleep. Birds fly.") == [
        "A cat is a pet. ",
        "Dogs bark. ",
        "Mice sleep. ",
        "Birds fly.",
    ]


def test_opening_marks_stay_with_their_sentence() -> None:
    assert pieces('He shot it. "Bricked" is slang. - Option (B) is odd. (C) Rust forms.') == [
        "He shot it. ",
        '"Bricked" is slang. ',
        "- Option (B) is odd. ",
        "(C) Rust forms.",
    ]


def published_cots() -> list[list[str]]:
    runs = chain.from_iterable(path.read_text().splitlines() for path in sorted(PUBLISHED.rglob("*.out")))
    cots = [tuple(json.loads(line)["segmented_cot"]) for line in runs]
    for path in sorted((PUBLISHED / "study").glob("*.csv")):
        with path.open(newline="") as file:
            cots += [tuple(row["segmented_cot"].split("||")) for row in csv.DictReader(file)]
    return [list(cot) for cot in dict.fromkeys(cots)]


def joined(cot: list[str]) -> str:
    return "".join(("\n" if re.fullmatch(r"\d+\.", piece) else " ") + piece for piece in cot).lstrip()


def starts_by_published(cot: list[str]) -> set[int]:
    text, position, starts = joined(cot), 0, set()
    for piece in cot:
        position = text.index(piece, position)
        starts.add(position)
        position += len(piece)
    return starts


def test_agrees_with_the_published_segmentation() -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published FUR data (../shared/data/fur_published) is not here")
    num_shared = num_ours = num_published = 0
    for cot in published_cots():
        text, published = joined(cot), starts_by_published(cot)
        ours = {span.start for span in segment(text)}
        by_line_break_only = {start for start in ours - published if text[:start].rstrip(" ").endswith("\n")}
        num_shared += len(ours & published)
        num_ours += len(ours - by_line_break_only)
        num_published += len(published)
    assert num_published > 1200
    assert num_shared == num_published
    assert num_shared / num_ours > 0.998


@pytest.mark.parametrize(
    "expected",
    [
        ["狐狸住在洞里。", "是吗？", "“是的！”", "所以选B。"],
        ["キツネは眠る。", "本当！？", "「はい。」", "答えは B です。"],
        ["الثعالب تنام. ", "هل هذا صحيح؟ ", "إذن B."],
        ["Лисы спят в норах. ", "Верно ли это? ", "Итак, B."],
        ["लोमड़ी सोती है। ", "उत्तर B है।"],
    ],
)
def test_sentences_of_other_scripts(expected: list[str]) -> None:
    assert pieces("".join(expected)) == expected


def test_more_than_a_million_characters() -> None:
    found = pieces("Snow is cold. " * 80_000)
    assert len(found) == 80_000
