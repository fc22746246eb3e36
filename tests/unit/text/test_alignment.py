"""Token spans against tokenizers built on the spot, and the mapping of steps and words onto tokens."""

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from fairwitness.text.alignment import align_tokens, content_positions, tokens_of_steps
from fairwitness.text.content_words import Word, content_words
from fairwitness.text.segmentation import Span, segment

CORPUS = [
    "The tall tower stands in Paris. It has been there for 130 years.",
    "1. Snow is cold.\n2. Fire is hot. So the answer is (B).",
    "naïve café über straße 东京 is the capital 🙂 of Japan.",
]
HARD = "naïve 🙂👩‍👩‍👧 東京は首都。  Two  spaces\n\ttab. ½ e\u0301 \ufffd end"


def byte_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<eos>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def metaspace_unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<eos>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([*CORPUS, HARD], trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    """A tokenizer like Llama 2's: spaces as ▁, unknown characters as byte tokens, the first space dropped."""
    alphabet = [
        "<unk>",
        "▁",
        *"abcdefghijklmnopqrstuvwxyzABCDEFT.,()\n0123",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    vocabulary = {piece: number for number, piece in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


TOKENIZERS: dict[str, Tokenizer] = {
    "byte_bpe": byte_bpe(),
    "metaspace": metaspace_unigram(),
    "byte_fallback": byte_fallback(),
}
EOS = 0  # the first special token gets the first id
every_tokenizer = pytest.mark.parametrize("name", list(TOKENIZERS))


def decoder_of(name: str) -> Callable[[Sequence[int]], str]:
    return lambda ids: TOKENIZERS[name].decode(list(ids), skip_special_tokens=True)


def assert_tiles(spans: Sequence[Span], length: int) -> None:
    bounds = [0] + [span.end for span in spans]
    assert [span.start for span in spans] == bounds[:-1]
    assert bounds == sorted(bounds)
    assert bounds[-1] == length


@every_tokenizer
@pytest.mark.parametrize("text", [*CORPUS, HARD])
def test_spans_tile_the_decoded_text(name: str, text: str) -> None:
    ids = TOKENIZERS[name].encode(text).ids
    aligned = align_tokens(decoder_of(name), ids)
    assert aligned.text == decoder_of(name)(ids)
    assert len(aligned.spans) == len(ids)
    assert_tiles(aligned.spans, len(aligned.text))


@pytest.mark.parametrize("text", [*CORPUS, HARD])
def test_byte_level_spans_are_those_of_the_tokenizer(text: str) -> None:
    """For a text that the tokenizer itself cut, its offsets are the oracle wherever a token holds whole characters."""
    encoding = TOKENIZERS["byte_bpe"].encode(text)
    spans = align_tokens(decoder_of("byte_bpe"), encoding.ids).spans
    checked = 0
    for number, (span, offsets) in enumerate(zip(spans, encoding.offsets, strict=True)):
        piece = TOKENIZERS["byte_bpe"].decode([encoding.ids[number]])
        if "\ufffd" not in piece:
            assert text[span.start : span.end] == text[offsets[0] : offsets[1]]
            checked += 1
        elif number + 1 < len(spans) and encoding.offsets[number + 1] == offsets:
            assert span.start == span.end == offsets[0] or span.end <= offsets[1]
    assert checked > len(text.split())


def test_a_character_goes_to_the_token_that_completes_it() -> None:
    ids = TOKENIZERS["byte_bpe"].encode("a中b").ids
    aligned = align_tokens(decoder_of("byte_bpe"), ids)
    assert [tuple(span) for span in aligned.spans] == [(0, 1), (1, 1), (1, 1), (1, 2), (2, 3)]


def test_the_space_dropped_at_the_start_is_dropped_there_only() -> None:
    ids = TOKENIZERS["byte_fallback"].encode("ab ab").ids
    aligned = align_tokens(decoder_of("byte_fallback"), ids)
    assert aligned.text == "ab ab"
    assert [aligned.text[start:end] for start, end in aligned.spans] == ["", "a", "b", " ", "a", "b"]


def test_special_tokens_that_decode_to_nothing_are_empty() -> None:
    ids = [EOS, *TOKENIZERS["byte_bpe"].encode("Snow").ids, EOS]
    aligned = align_tokens(decoder_of("byte_bpe"), ids)
    assert TOKENIZERS["byte_bpe"].id_to_token(EOS) == "<eos>"
    assert aligned.text == "Snow"
    assert aligned.spans[0] == Span(0, 0)
    assert aligned.spans[-1] == Span(4, 4)


def test_no_ids_no_text() -> None:
    assert align_tokens(decoder_of("byte_bpe"), []) == ("", [])


@every_tokenizer
@settings(deadline=None, max_examples=150)
@given(st.text(max_size=40))
def test_any_text_is_aligned(name: str, text: str) -> None:
    ids = TOKENIZERS[name].encode(text).ids
    aligned = align_tokens(decoder_of(name), ids)
    assert aligned.text == decoder_of(name)(ids)
    assert_tiles(aligned.spans, len(aligned.text))


@every_tokenizer
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_ids_are_aligned_even_broken_bytes(name: str, data: st.DataObject) -> None:
    size = TOKENIZERS[name].get_vocab_size()
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=60))
    aligned = align_tokens(decoder_of(name), ids)
    assert aligned.text == decoder_of(name)(ids)
    assert_tiles(aligned.spans, len(aligned.text))


def test_broken_bytes_do_not_spoil_what_follows() -> None:
    """Byte tokens that stand for letters decode to something else when the run they are in is broken."""
    tokenizer = TOKENIZERS["byte_fallback"]
    broken = [tokenizer.token_to_id(f"<0x{byte}>") or 0 for byte in ("E2", "41", "42", "43", "44")]
    assert 0 not in broken
    after = "cd ab " * 10
    ids = [*tokenizer.encode("ab").ids, *broken, *tokenizer.encode(after).ids]
    text, spans = align_tokens(decoder_of("byte_fallback"), ids)
    assert text.count("\ufffd") == 5
    assert [text[start:end] for start, end in spans[-20:]] == list(text[-20:])


@every_tokenizer
def test_runs_of_empty_spans_stay_short_on_random_ids(name: str) -> None:
    generator = random.Random(0)
    size = TOKENIZERS[name].get_vocab_size()
    for _ in range(100):
        ids = [generator.randrange(size) for _ in range(200)]
        empty = "".join("x" if span.start == span.end else " " for span in align_tokens(decoder_of(name), ids).spans)
        assert max(map(len, empty.split()), default=0) <= 40


def test_decoding_is_asked_for_a_linear_number_of_tokens() -> None:
    ids = TOKENIZERS["byte_bpe"].encode((CORPUS[0] + " 🙂 ") * 800).ids
    num_decoded = 0

    def counting(part: Sequence[int]) -> str:
        nonlocal num_decoded
        num_decoded += len(part)
        return decoder_of("byte_bpe")(part)

    started_s = time.perf_counter()
    aligned = align_tokens(counting, ids)
    assert time.perf_counter() - started_s < 30
    assert len(ids) > 20_000
    assert num_decoded < 12 * len(ids)
    assert_tiles(aligned.spans, len(aligned.text))


def test_a_long_run_without_text_is_not_quadratic() -> None:
    ids = [EOS] * 20_000 + TOKENIZERS["byte_bpe"].encode("Snow").ids
    num_decoded = 0

    def counting(part: Sequence[int]) -> str:
        nonlocal num_decoded
        num_decoded += len(part)
        return decoder_of("byte_bpe")(part)

    aligned = align_tokens(counting, ids)
    assert aligned.text == "Snow"
    assert aligned.spans[-1].end == 4
    assert num_decoded < 10 * len(ids)


def spans_of(*lengths: int) -> list[Span]:
    spans, start = [], 0
    for length in lengths:
        spans.append(Span(start, start + length))
        start += length
    return spans


def test_a_token_belongs_to_the_step_of_its_first_visible_character() -> None:
    text = "Ab. Cd."
    steps = [Span(0, 4), Span(4, 7)]
    assert tokens_of_steps(spans_of(2, 1, 3, 1), text, steps) == [range(0, 2), range(2, 4)]
    assert tokens_of_steps(spans_of(3, 1, 3), text, steps) == [range(0, 2), range(2, 3)]


def test_empty_tokens_go_with_the_character_they_stand_before() -> None:
    text = "Ab.\n😀 ok."
    steps = [Span(0, 4), Span(4, 9)]
    tokens = [Span(0, 3), Span(3, 4), Span(4, 4), Span(4, 5), Span(5, 9), Span(9, 9)]
    assert tokens_of_steps(tokens, text, steps) == [range(0, 2), range(2, 6)]


def test_a_step_swallowed_by_a_token_is_empty() -> None:
    assert tokens_of_steps(spans_of(4, 1), "abcde", [Span(0, 1), Span(1, 2), Span(2, 5)]) == [
        range(0, 1),
        range(1, 1),
        range(1, 2),
    ]


def test_no_steps_or_no_tokens() -> None:
    assert tokens_of_steps(spans_of(2), "ab", []) == []
    assert tokens_of_steps([], "ab", [Span(0, 2)]) == [range(0, 0)]


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab .\n1", min_size=1, max_size=30), st.data())
def test_steps_share_out_all_tokens(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    bounds = [0, *cuts, len(text)]
    tokens = [Span(start, end) for start, end in pairwise(bounds)]
    steps = segment(text)
    ranges = tokens_of_steps(tokens, text, steps)
    assert [index for part in ranges for index in part] == list(range(len(tokens)))
    for step, part in zip(steps, ranges, strict=True):
        for index in part:
            visible = [at for at in range(*tokens[index]) if not text[at].isspace()]
            anchor = visible[0] if visible else tokens[index].start
            assert step.start <= anchor < step.end or anchor == len(text) == step.end


def word(start: int, end: int) -> Word:
    return Word(start, end, "x" * (end - start), "NOUN")


def test_words_take_the_tokens_that_touch_them_once() -> None:
    tokens = spans_of(3, 3, 4, 2)
    assert content_positions(tokens, [word(1, 5), word(5, 8), word(11, 12)]) == [[0, 1], [2], [3]]


def test_a_word_inside_a_token_already_taken_has_none() -> None:
    assert content_positions(spans_of(10), [word(0, 2), word(4, 6)]) == [[0], []]


def test_tokens_between_words_are_left_out() -> None:
    assert content_positions(spans_of(2, 2, 2), [word(0, 1), word(4, 6)]) == [[0], [2]]


def test_first_bytes_of_a_character_count_for_its_word() -> None:
    tokens = [Span(0, 1), Span(1, 1), Span(1, 1), Span(1, 2), Span(2, 2), Span(2, 3), Span(3, 3), Span(3, 4)]
    assert content_positions(tokens, [word(1, 3)]) == [[1, 2, 3, 4, 5]]


@every_tokenizer
def test_words_of_a_real_text_come_back_from_their_tokens(name: str) -> None:
    ids = TOKENIZERS[name].encode(CORPUS[0]).ids
    text, spans = align_tokens(decoder_of(name), ids)
    words = content_words(text)
    positions = content_positions(spans, words)
    assert len(words) >= 6
    for found, places in zip(words, positions, strict=True):
        assert found.text in text[spans[places[0]].start : spans[places[-1]].end]
    flat = [place for places in positions for place in places]
    assert flat == sorted(set(flat))
