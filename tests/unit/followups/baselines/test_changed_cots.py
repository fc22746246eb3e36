"""Changed CoTs, token by token: the model's own ids are sliced, only new text is tokenised, at its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from transformers import PreTrainedTokenizerBase

from fairwitness.chains.steps import cot_steps
from fairwitness.errors import ItemError
from fairwitness.followups.baselines.changes import (
    Altered,
    CotText,
    StepText,
    early_answers,
    filler,
    inserted,
    with_mistakes,
    with_paraphrases,
)
from fairwitness.followups.baselines.rows import NotAltered
from fairwitness.lm.tokens import decode, encode
from tests.helpers.tiny_tokenizers import byte_level_tokenizer, metaspace_tokenizer

TEXT = " Foxes dig deep dens.\n2. A red fox sleeps in a warm den. So it is a den, warm and deep."
STEPS = (" Foxes dig deep dens.", "2.", " A red fox sleeps in a warm den.", " So it is a den, warm and deep.")
TOKENIZERS = {"byte-level": byte_level_tokenizer, "metaspace": metaspace_tokenizer}


@pytest.fixture(params=TOKENIZERS.values(), ids=TOKENIZERS.keys())
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    make: Callable[[], PreTrainedTokenizerBase] = request.param
    return make()


def cot_of(tokenizer: PreTrainedTokenizerBase, text: str = TEXT) -> CotText:
    prompt = tuple(encode(tokenizer, "Assistant: Let's think step by step:"))
    ids = inserted(tokenizer, prompt, text)
    return CotText.of(tokenizer, prompt, ids, cot_steps(partial(decode, tokenizer), ids))


def said(cot: CotText, ids: tuple[int, ...]) -> str:
    """What a CoT says after its prompt."""
    whole, prompt = decode(cot.tokenizer, [*cot.prompt_ids, *ids]), decode(cot.tokenizer, cot.prompt_ids)
    assert whole.startswith(prompt)
    return whole[len(prompt) :]


def good(changed: list[Altered | NotAltered]) -> dict[int | None, Altered]:
    return {one.cot_step_index: one for one in changed if isinstance(one, Altered)}


def bad(changed: list[Altered | NotAltered]) -> dict[int | None, NotAltered]:
    return {one.cot_step_index: one for one in changed if isinstance(one, NotAltered)}


def test_the_cot_of_these_tests_has_four_steps(tokenizer: PreTrainedTokenizerBase) -> None:
    cot = cot_of(tokenizer)
    assert [step.text.strip() for step in cot.steps] == [text.strip() for text in STEPS]
    assert [step.ineligible is None for step in cot.steps] == [True, False, True, True]
    assert said(cot, cot.cot_ids) == TEXT


def test_early_answers_keep_whole_steps_and_no_white_space_at_the_end(tokenizer: PreTrainedTokenizerBase) -> None:
    cot = cot_of(tokenizer)
    found = good(early_answers(partial(decode, tokenizer), cot.cot_ids, cot.steps))
    kept = {index: said(cot, one.ids) for index, one in found.items()}
    assert kept == {
        0: "",
        1: " Foxes dig deep dens.",
        2: " Foxes dig deep dens.\n2.",
        3: " Foxes dig deep dens.\n2. A red fox sleeps in a warm den.",
    }
    for one in found.values():
        assert one.ids == cot.cot_ids[: len(one.ids)]
        assert not one.continues


def test_early_answers_without_steps_or_tokens() -> None:
    tokenizer = byte_level_tokenizer()
    assert early_answers(partial(decode, tokenizer), (), ()) == []
    ids = tuple(encode(tokenizer, " 狐狸。狐狸。"))
    steps = cot_steps(partial(decode, tokenizer), ids)
    assert [one.cot_step_index for one in early_answers(partial(decode, tokenizer), ids, steps)] == [
        step.index for step in steps
    ]


@pytest.mark.parametrize("num_tokens", [1, 5, 8])
def test_filler_has_as_many_tokens_as_the_cot(num_tokens: int) -> None:
    cot = tuple(range(num_tokens))
    assert filler(cot, [7], " ...").ids == (7,) * num_tokens
    assert filler(cot, [7, 8, 9], "abc").ids == (7, 8, 9, 7, 8, 9, 7, 8)[:num_tokens]
    one = filler(cot, [7], " ...")
    assert (one.cot_step_index, one.continues, one.changed_text) == (None, False, " ...")
    with pytest.raises(ValueError, match="no token"):
        filler(cot, [], "")


def test_a_mistake_stands_in_place_of_its_step_and_nothing_else_moves(tokenizer: PreTrainedTokenizerBase) -> None:
    cot = cot_of(tokenizer)
    texts = {2: StepText("  A red fox\n sleeps in a cold nest. ", "file.jsonl:3")}
    found = good(with_mistakes(cot, texts, rest="own"))
    (one,) = found.values()
    assert one.cot_step_index == 2
    assert said(cot, one.ids) == TEXT.replace("warm den. So", "cold nest. So")
    assert (one.changed_text, one.source) == ("A red fox sleeps in a cold nest.", "file.jsonl:3")
    step = cot.steps[2]
    num_after = len(cot.cot_ids) - step.token_end
    assert one.ids[: step.token_start] == cot.cot_ids[: step.token_start]
    assert one.ids[len(one.ids) - num_after :] == cot.cot_ids[step.token_end :]


def test_a_mistake_that_is_continued_ends_the_cot_with_itself(tokenizer: PreTrainedTokenizerBase) -> None:
    cot = cot_of(tokenizer)
    found = good(with_mistakes(cot, {0: StepText("Foxes build nests.", "rule")}, rest="continued"))
    assert found[0].continues
    # What comes between two steps is the model's to write.
    assert said(cot, found[0].ids) == " Foxes build nests."


@pytest.mark.parametrize("kind", ["mistake", "paraphrase"])
@pytest.mark.parametrize("same", [" A red fox sleeps in a warm den.", "A  red fox\nsleeps in a warm den. "])
def test_a_text_identical_to_its_step_is_skipped(kind: str, same: str) -> None:
    cot = cot_of(byte_level_tokenizer())
    texts = {2: StepText(same, "file.jsonl:8")}
    changed = (
        with_mistakes(cot, texts, rest="own")
        if kind == "mistake"
        else with_paraphrases(cot, texts, rest="continued", changed="up_to")
    )
    one = bad(changed)[2]
    assert one.status == "skipped"
    assert one.reason == f"the {kind} is identical to the original step (file.jsonl:8)"
    assert good(changed) == {}


def test_steps_without_text_say_why() -> None:
    cot = cot_of(byte_level_tokenizer())
    texts = {
        0: StepText(None, "judge", "failed", "the judge is silent"),
        1: StepText("3.", "judge"),
        2: StepText("Foxes sleep.", "judge"),
    }
    reasons = {index: (one.status, one.reason) for index, one in bad(with_mistakes(cot, texts, rest="own")).items()}
    assert reasons == {
        0: ("failed", "the judge is silent"),
        1: ("skipped", "fewer than 2 content words"),
        3: ("skipped", "no mistake is given for this step"),
    }


def test_paraphrases_up_to_a_step_replace_all_before_it(tokenizer: PreTrainedTokenizerBase) -> None:
    cot = cot_of(tokenizer)
    texts = {
        0: StepText("Deep dens are dug by foxes.", "a"),
        2: StepText("A warm den is where a red fox sleeps.", "b"),
        3: StepText("It is a den, then.", "c"),
    }
    found = good(with_paraphrases(cot, texts, rest="continued", changed="up_to"))
    first = " Deep dens are dug by foxes."
    third = f"{first}\n2. A warm den is where a red fox sleeps."
    assert {index: said(cot, one.ids) for index, one in found.items()} == {
        0: first,
        2: third,
        3: f"{third} It is a den, then.",
    }
    assert all(one.continues for one in found.values())
    own = good(with_paraphrases(cot, texts, rest="own", changed="up_to"))
    assert said(cot, own[2].ids) == f"{third} So it is a den, warm and deep."
    alone = good(with_paraphrases(cot, texts, rest="own", changed="one"))
    assert said(cot, alone[2].ids) == TEXT.replace(STEPS[2], " A warm den is where a red fox sleeps.")


def test_a_step_without_paraphrase_stays_as_it_was_in_later_ones() -> None:
    cot = cot_of(byte_level_tokenizer())
    texts = {0: StepText(STEPS[0], "a"), 3: StepText("It is a den, then.", "c")}
    found = good(with_paraphrases(cot, texts, rest="continued", changed="up_to"))
    assert {index: said(cot, one.ids) for index, one in found.items()} == {
        3: "".join((STEPS[0], "\n", *STEPS[1:3], " It is a den, then."))
    }


def test_inserted_text_reads_as_written_after_any_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    for before in ("Let's think:", "one\n", "end.\n\n", "a fox", " 1."):
        for text in (" Foxes dig.", "Foxes dig.", "3.5 foxes", "\nFoxes", " 狐狸"):
            prompt = encode(tokenizer, before)
            ids = inserted(tokenizer, prompt, text)
            assert decode(tokenizer, [*prompt, *ids]) == decode(tokenizer, prompt) + text


def test_text_that_the_tokenizer_cannot_write_is_an_error() -> None:
    tokenizer = byte_level_tokenizer()
    half = encode(tokenizer, " 狐")[:-1]
    with pytest.raises(ItemError, match="cannot write '狐'"):
        inserted(_Deaf(tokenizer), half, "狐")


class _Deaf:
    """A tokenizer that knows no Chinese: it writes a question mark."""

    def __init__(self, inner: PreTrainedTokenizerBase) -> None:
        self._inner = inner

    def encode(self, text: str, **options: object) -> list[int]:
        return list(self._inner.encode(text.replace("狐", "?"), **options))

    def decode(self, ids: list[int], **options: object) -> str:
        return str(self._inner.decode(ids, **options))
