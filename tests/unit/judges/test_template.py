"""Shipped and own templates, and what is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairwitness.errors import ConfigError
from fairwitness.judges.protocol import ChatPrompt
from fairwitness.judges.template import PromptTemplate, load_template

REQUIRED = ("question", "choices", "cot_before", "cot_after")
VALUES = {
    "question": "Is 1 < 2 & 3?",
    "choices": "(A): {{ yes }}",
    "cot_before": "It is {% if %}.",
    "cot_after": "It is not.",
    "verdicts": "same, different, unclear",
}


def own(folder: Path, text: str) -> PromptTemplate:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_template("cot_after", str(path), required=("question",), optional=("choices",))


def test_the_shipped_template_shows_everything_unescaped() -> None:
    template = load_template("cot_after", None, required=REQUIRED, optional=("verdicts",))
    prompt = template.fill(VALUES)
    for value in ("Is 1 < 2 & 3?", "(A): {{ yes }}", "It is {% if %}.", "It is not."):
        assert value in prompt.user
    assert "same, different, unclear" in prompt.system
    assert prompt.user.index("It is {% if %}.") < prompt.user.index("It is not.")


def test_a_users_template_replaces_it(tmp_path: Path) -> None:
    template = own(tmp_path, "user: 'Say: {{ question }}'\n")
    assert template.fill(VALUES) == ChatPrompt("Say: Is 1 < 2 & 3?", "")
    assert template.key != own(tmp_path, "user: 'Tell: {{ question }}'\n").key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user: '{{ question '\n", "not a template"),
        ("user: 'What?'\n", r"must show \{\{ question \}\}"),
        ("user: '{{ question }} {{ colour }}'\n", "'colour' is no value of this question; there are question, choices"),
        ("prompt: '{{ question }}'\n", "unknown key 'prompt'"),
        ("system: x\n", "user: is missing"),
        ("- a\n", "must hold the keys"),
        ("user: '{{ question'}\n", "not valid YAML"),
        ('user: "{{ question.__class__.__mro__ }}"\n', "cannot be filled in"),
    ],
)
def test_a_broken_template_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as info:
        own(tmp_path, text).fill(VALUES)
    assert "mine.yaml" in str(info.value)


def test_a_template_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_template("cot_after", str(tmp_path / "none.yaml"), required=())
