"""The prompts, character by character."""

import pytest

from fairwitness.text.prompts import (
    chat_cot,
    chat_cot_answer,
    chat_direct,
    choices_block,
    cot_answer_suffix,
    cot_prompt,
    direct_prompt,
    question_block,
)

QUESTION = "Is snow white?"
CHOICES = ("Yes", "No")


def test_direct_prompt_is_fur_s_to_the_character() -> None:
    assert direct_prompt(QUESTION, CHOICES) == (
        "Human: Question: Is snow white?\n\nChoices:\n(A): Yes\n(B): No\n\n"
        "Assistant: The single, most likely answer is ("
    )


def test_cot_prompt_ends_right_after_the_colon() -> None:
    assert cot_prompt(QUESTION, CHOICES) == (
        "Human: Question: Is snow white?\n\nChoices:\n(A): Yes\n(B): No\n\nAssistant: Let's think step by step:"
    )


def test_cot_answer_suffix_asks_once_more_and_ends_at_the_letter() -> None:
    assert cot_answer_suffix() == (
        "\n\nHuman: Given all of the above, what's the single, most likely answer?\n\n"
        "Assistant: The single, most likely answer is ("
    )


def test_chat_prompts_hold_the_same_words_without_turn_markers() -> None:
    direct, cot = chat_direct(QUESTION, CHOICES), chat_cot(QUESTION, CHOICES)
    assert direct.turns == cot.turns == [{"role": "user", "content": question_block(QUESTION, CHOICES)}]
    assert (direct.prefill, cot.prefill) == ("The single, most likely answer is (", "Let's think step by step:")
    assert "Human:" not in direct.turns[0]["content"]


def test_chat_answer_after_cot_is_a_second_user_turn() -> None:
    asked = chat_cot_answer(QUESTION, CHOICES, " Snow is white.")
    assert [turn["role"] for turn in asked.turns] == ["user", "assistant", "user"]
    assert asked.turns[1]["content"] == "Let's think step by step: Snow is white."
    assert asked.turns[2]["content"] == "Given all of the above, what's the single, most likely answer?"
    assert asked.prefill == "The single, most likely answer is ("


def test_choices_reach_z_and_no_further() -> None:
    assert choices_block([str(number) for number in range(26)]).endswith("(Z): 25")
    with pytest.raises(ValueError, match="27 choices"):
        choices_block(["x"] * 27)
