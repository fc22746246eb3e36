"""Prompts as token ids: BOS once, the CoT never tokenised again, letters in context."""

from __future__ import annotations

from string import ascii_uppercase

import pytest
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from fairwitness.errors import ModelError
from fairwitness.lm.tokens import PromptEncoder, bos_ids, decode, encode, encode_continuation
from fairwitness.problems.problem import Problem
from fairwitness.text import prompts
from tests.helpers.tiny_tokenizers import (
    byte_level_tokenizer,
    merging_tokenizer,
    metaspace_tokenizer,
    splitting_tokenizer,
)

PROBLEM = Problem("p1", "Where does the red fox sleep?", ("in a den", "in a nest", "in a tree"), "A", "foxes")
TOKENIZERS = {
    "byte_level": byte_level_tokenizer(),
    "byte_level_bos": byte_level_tokenizer(adds_bos=True, pad=False),
    "metaspace_bos": metaspace_tokenizer(),
    "metaspace": metaspace_tokenizer(adds_bos=False),
}


@pytest.fixture(params=sorted(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]


def _num_bos(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> int:
    return ids.count(tokenizer.bos_token_id)


def test_encode_adds_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = encode(tokenizer, "The red fox")
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert decode(tokenizer, ids) == "The red fox"
    assert encode(tokenizer, "") == []
    assert decode(tokenizer, []) == ""


def test_special_token_in_a_text_is_plain_text_unless_asked_for(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.eos_token_id not in encode(tokenizer, "What is <eos> for?")
    assert tokenizer.eos_token_id in encode(tokenizer, "What is <eos> for?", parse_special=True)
    problem = Problem("p", "What is <eos> for?", ("an end", "<bos>"), None, "set")
    ids = PromptEncoder(tokenizer, "plain").direct(problem)
    assert tokenizer.eos_token_id not in ids
    assert _num_bos(tokenizer, ids) == len(bos_ids(tokenizer))


def test_decode_keeps_spaces_and_shows_special_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = encode(tokenizer, "a fox , a den . it 's")
    assert decode(tokenizer, ids) == "a fox , a den . it 's"
    assert decode(tokenizer, [*ids, tokenizer.eos_token_id]).endswith("<eos>")


@pytest.mark.parametrize("text", ["\n\nHuman: Given", " and so on", "(A)", "no space"])
def test_continuation_adds_no_space(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    before = encode(tokenizer, "The fox")
    ids = encode_continuation(tokenizer, text, parse_special=True)
    assert decode(tokenizer, before + ids) == "The fox" + text


def test_bos_exactly_when_the_tokenizer_adds_it() -> None:
    assert bos_ids(TOKENIZERS["byte_level"]) == []
    assert bos_ids(TOKENIZERS["metaspace"]) == []
    for name in ("byte_level_bos", "metaspace_bos"):
        assert bos_ids(TOKENIZERS[name]) == [TOKENIZERS[name].bos_token_id]
    without = byte_level_tokenizer()
    without.bos_token = None
    assert bos_ids(without) == []


def test_plain_prompts_read_as_written(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = PromptEncoder(tokenizer, "plain")
    bos = bos_ids(tokenizer)
    for ids, text in (
        (encoder.direct(PROBLEM), prompts.direct_prompt(PROBLEM.question, PROBLEM.choices)),
        (encoder.cot(PROBLEM), prompts.cot_prompt(PROBLEM.question, PROBLEM.choices)),
    ):
        assert ids[: len(bos)] == bos
        assert _num_bos(tokenizer, ids) == len(bos)
        assert decode(tokenizer, ids[len(bos) :]) == text


def test_plain_cot_answer_reads_as_written_around_untouched_ids(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = PromptEncoder(tokenizer, "plain")
    # Letters one by one: no tokenizer would give these ids for the text again.
    cot_ids = [token for letter in "Foxes" for token in encode(tokenizer, letter)]
    ids = encoder.cot_answer(PROBLEM, cot_ids)
    cot_prompt = encoder.cot(PROBLEM)
    assert ids[: len(cot_prompt)] == cot_prompt
    assert ids[len(cot_prompt) : len(cot_prompt) + len(cot_ids)] == cot_ids
    assert _num_bos(tokenizer, ids) == len(bos_ids(tokenizer))
    assert decode(tokenizer, ids).endswith(prompts.cot_answer_suffix())


def test_chat_prompts_follow_the_template_with_one_bos(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = PromptEncoder(tokenizer, "chat")
    block = prompts.question_block(PROBLEM.question, PROBLEM.choices)
    expected = f"<bos><|user|>\n{block}<|end|>\n<|assistant|>\n{prompts.ANSWER_CUE}"
    ids = encoder.direct(PROBLEM)
    assert ids == encode(tokenizer, expected, parse_special=True)
    assert ids[0] == tokenizer.bos_token_id
    assert _num_bos(tokenizer, ids) == 1


def test_chat_cot_answer_goes_on_in_a_second_user_turn(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder = PromptEncoder(tokenizer, "chat")
    cot_ids = [token for letter in " Foxes" for token in encode_continuation(tokenizer, letter)]
    ids = encoder.cot_answer(PROBLEM, cot_ids)
    cot_prompt = encoder.cot(PROBLEM)
    assert ids[: len(cot_prompt)] == cot_prompt
    assert ids[len(cot_prompt) :][: len(cot_ids)] == cot_ids
    assert _num_bos(tokenizer, ids) == 1
    suffix = f"<|end|>\n<|user|>\n{prompts.FOLLOW_UP}<|end|>\n<|assistant|>\n{prompts.ANSWER_CUE}"
    # SentencePiece-like tokenizers put a space after a special token, here as in every chat prompt of theirs.
    assert decode(tokenizer, ids).replace("|> ", "|>").endswith(" Foxes" + suffix)


def test_a_bos_that_the_template_doubles_is_kept_once() -> None:
    tokenizer = byte_level_tokenizer(adds_bos=True)
    tokenizer.chat_template = "{{ bos_token }}" + str(tokenizer.chat_template)
    ids = PromptEncoder(tokenizer, "chat").direct(PROBLEM)
    assert _num_bos(tokenizer, ids) == 1


def test_a_template_without_bos_gets_none() -> None:
    tokenizer = byte_level_tokenizer(adds_bos=True)
    tokenizer.chat_template = str(tokenizer.chat_template).replace("{{ bos_token }}", "")
    assert _num_bos(tokenizer, PromptEncoder(tokenizer, "chat").cot_answer(PROBLEM, [20])) == 0


def test_prompts_do_not_depend_on_the_date() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}|{{ date_string }}|" + str(tokenizer.chat_template)
    text = decode(tokenizer, PromptEncoder(tokenizer, "chat").direct(PROBLEM))
    assert text.startswith("26 Jul 2024|26 Jul 2024|")


@pytest.mark.parametrize("style", ["plain", "chat"])
@pytest.mark.parametrize("context", ["direct", "cot_answer"])
def test_letters_are_those_of_the_context(
    tokenizer: PreTrainedTokenizerFast, style: prompts.PromptStyle, context: str
) -> None:
    encoder = PromptEncoder(tokenizer, style)
    prompt = encoder.direct(PROBLEM) if context == "direct" else encoder.cot_answer(PROBLEM, [20, 21])
    letters = encoder.letter_ids(26, context)
    assert len(set(letters)) == 26
    for letter, token in zip(ascii_uppercase, letters, strict=True):
        assert decode(tokenizer, [*prompt, token]) == decode(tokenizer, prompt) + letter
    assert encoder.letter_ids(3, context) == letters[:3]


def test_merged_bracket_is_refused_and_named() -> None:
    with pytest.raises(ModelError, match=r"merges the answer cue with letter A: '\(A' in place of '\(' and 'A'"):
        PromptEncoder(merging_tokenizer(), "plain").letter_ids(4)


def test_letter_of_several_tokens_is_refused_and_named() -> None:
    with pytest.raises(ModelError, match=r"letter A after the answer cue as 2 tokens, '\^' 'a'"):
        PromptEncoder(splitting_tokenizer(), "plain").letter_ids(4)


def test_letters_with_one_token_between_them_are_refused() -> None:
    tokenizer = metaspace_tokenizer()
    raw = tokenizer.backend_tokenizer
    raw.normalizer = normalizers.Sequence([raw.normalizer, normalizers.Replace("B", "A")])
    with pytest.raises(ModelError, match="two answer letters the same token"):
        PromptEncoder(tokenizer, "plain").letter_ids(4)


@pytest.mark.parametrize("num_choices", [0, 27])
def test_more_choices_than_letters(num_choices: int) -> None:
    with pytest.raises(ModelError, match="letters for 1 to 26"):
        PromptEncoder(byte_level_tokenizer(), "plain").letter_ids(num_choices)


def test_chat_style_needs_a_template() -> None:
    tokenizer = byte_level_tokenizer(chat=False)
    with pytest.raises(ModelError, match="no chat template; set prompt_style: plain"):
        PromptEncoder(tokenizer, "chat")
    PromptEncoder(tokenizer, "plain")


def test_template_that_cannot_hold_the_conversation_is_refused() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('one turn only') if messages | length > 1 else 'x' }}"
    with pytest.raises(ModelError, match="one turn only"):
        PromptEncoder(tokenizer, "chat").cot_answer(PROBLEM, [20])


def test_template_that_drops_the_assistant_turn_is_refused() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(ModelError, match="0 times instead of once"):
        PromptEncoder(tokenizer, "chat").cot_answer(PROBLEM, [20])
