"""Prompts of drafts: tags that the template writes or leaves out, plain CoT models, closings."""

from __future__ import annotations

import pytest

from fairwitness.drafts.styles import IMMEDIATE_CUE, DraftStyle
from fairwitness.errors import ModelError
from fairwitness.lm.tokens import decode
from fairwitness.problems.problem import Problem
from fairwitness.text.think_tags import Tags
from tests.helpers.tiny_tokenizers import byte_level_tokenizer

PROBLEM = Problem("p1", "Which is red?", ("fox", "owl"), "A", "animals")
TAGS = Tags("<think>", "</think>")
PREFILLS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ '[assistant]<think>\\n' }}"
LEAVES_OUT = PREFILLS.replace("<think>\\n", "")


def style(template: str | None, tags: Tags | None, *, is_chat: bool = True) -> DraftStyle:
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = template
    return DraftStyle(tokenizer, tags, is_chat)


@pytest.mark.parametrize("template", [PREFILLS, LEAVES_OUT])
def test_the_opening_tag_is_there_once(template: str) -> None:
    one = style(template, TAGS)
    text = decode(one.tokenizer, one.draft_prompt(PROBLEM))
    assert text.endswith("[assistant]<think>\n")
    assert text.count("<think>") == 1


def test_a_chat_model_without_tags_gets_the_cue() -> None:
    one = style(LEAVES_OUT, None)
    assert decode(one.tokenizer, one.draft_prompt(PROBLEM)).endswith("[assistant]Let's think step by step:")


def test_plain_prompts() -> None:
    plain = style(None, None, is_chat=False)
    assert decode(plain.tokenizer, plain.draft_prompt(PROBLEM)).endswith("Assistant: Let's think step by step:")
    tagged = style(None, TAGS, is_chat=False)
    assert decode(tagged.tokenizer, tagged.draft_prompt(PROBLEM)).endswith("Assistant: <think>\n")


def test_chat_without_a_template_is_refused() -> None:
    with pytest.raises(ModelError, match="no chat template; set prompt_style: plain"):
        style(None, TAGS)


@pytest.mark.parametrize("tags", [None, Tags("<seed:think>", "</seed:think>")])
def test_a_template_that_opens_the_draft_with_another_tag(tags: Tags | None) -> None:
    with pytest.raises(ModelError, match=r"the chat template opens the draft with '<think>', but tags.*set tags\.open"):
        style(PREFILLS, tags)
    assert style(PREFILLS.replace("<think>", "<|assistant|>"), tags).is_chat


def test_a_template_that_switches_thinking_off() -> None:
    one = style(PREFILLS.replace("<think>\\n", "<think>\\n\\n</think>\\n\\n"), None)
    assert decode(one.tokenizer, one.draft_prompt(PROBLEM)).endswith("</think>\n\nLet's think step by step:")


def test_closings() -> None:
    tagged, plain = style(PREFILLS, TAGS), style(None, None, is_chat=False)
    assert decode(tagged.tokenizer, tagged.closing(immediate=False)) == "\n</think>\n\n"
    assert decode(tagged.tokenizer, tagged.closing(immediate=True)) == f"\n</think>\n\n{IMMEDIATE_CUE}"
    assert decode(plain.tokenizer, plain.closing(immediate=True)).endswith("The single, most likely answer is (")
    assert decode(plain.tokenizer, plain.closing(immediate=False)).endswith("Assistant:")


def test_an_insertion_stands_on_its_own_line() -> None:
    one = style(PREFILLS, TAGS)
    assert decode(one.tokenizer, one.insertion("Wait, no.")) == "\n\nWait, no.\n\n"
