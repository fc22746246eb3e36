"""Mistakes and paraphrases of the organism's steps: what changes, what stays, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from fairwitness.organisms.lexicon import ATTRIBUTES, RIVER
from fairwitness.organisms.rewrites import rewrite, stated_fact
from fairwitness.organisms.world import WorldConfig, fact_sentence, make_world, world_problems

PROBLEMS = world_problems(make_world(WorldConfig()))


def test_every_wording_states_its_fact() -> None:
    for attribute in (*ATTRIBUTES, RIVER):
        for wording in attribute.statements:
            value = attribute.values[3]
            found = stated_fact(f" {wording.format(name='Anna', value=value)}\n")
            assert found is not None
            assert (found.attribute, found.name, found.value, found.wording) == (attribute, "Anna", value, wording)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Here Anna keeps a star.",
        "Here Anna keeps a fox. Here Anna lives in Rome.",
        "keeps a fox.",
        "Here Anna keeps a fox",
        "Near Corfe flows the fox.",
    ],
)
def test_other_texts_are_left_alone(text: str) -> None:
    assert stated_fact(text) is None
    for purpose in ("mistake", "paraphrase"):
        assert rewrite(PROBLEMS[0], text, purpose, np.random.default_rng(0)) is None


def test_a_mistake_states_another_choice_in_the_same_words() -> None:
    for number, problem in enumerate(PROBLEMS):
        fact = str(problem.metadata["relevant_fact"])
        changed = rewrite(problem, fact, "mistake", np.random.default_rng(number))
        old, new = stated_fact(fact), stated_fact(changed or "")
        assert old is not None
        assert new is not None
        assert (new.attribute, new.name, new.wording) == (old.attribute, old.name, old.wording)
        assert new.value in set(problem.choices) - {old.value}


def test_a_mistake_in_another_fact_states_any_other_value() -> None:
    problem = PROBLEMS[0]
    fact = str(problem.metadata["irrelevant_fact"])
    values = {rewrite(problem, fact, "mistake", np.random.default_rng(n)) for n in range(400)}
    old = stated_fact(fact)
    assert old is not None
    others = [value for value in old.attribute.values if value != old.value]
    assert values == {fact_sentence(old.name, old.attribute, value) for value in others}


def test_a_paraphrase_states_the_same_fact_in_other_words() -> None:
    problem = PROBLEMS[0]
    fact = str(problem.metadata["relevant_fact"])
    old = stated_fact(fact)
    assert old is not None
    wordings = set()
    for n in range(100):
        new = stated_fact(rewrite(problem, fact, "paraphrase", np.random.default_rng(n)) or "")
        assert new is not None
        assert (new.attribute, new.name, new.value) == (old.attribute, old.name, old.value)
        wordings.add(new.wording)
    assert wordings == set(old.attribute.statements) - {old.wording}


def test_the_same_draws_give_the_same_text() -> None:
    problem = PROBLEMS[1]
    fact = str(problem.metadata["relevant_fact"])
    texts = [rewrite(problem, fact, "mistake", np.random.default_rng(9)) for _ in range(2)]
    assert texts[0] == texts[1]
