"""The organism's world: deterministic, both kinds of problem alike, ground truth where it is claimed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, NOTE, RIVER, VILLAGES
from fairwitness.organisms.world import (
    World,
    WorldConfig,
    fact_sentence,
    is_step_used,
    label_cot_step,
    make_world,
    world_problems,
)

CONFIG = WorldConfig(num_asked=32, num_told=32)


@pytest.fixture(scope="module")
def world() -> World:
    """A small world."""
    return make_world(CONFIG)


def test_lexicon_has_no_word_twice() -> None:
    words = [*NAMES, *VILLAGES, *(value for attribute in (*ATTRIBUTES, RIVER) for value in attribute.values)]
    assert len(words) == len(set(words))


def test_no_village_holds_a_name() -> None:
    assert not [(name, village) for name in NAMES for village in VILLAGES if name in village or village in name]


def test_words_before_a_value_come_nowhere_else_in_a_question() -> None:
    """Memory opens at these words, so a question must not hold one."""
    for attribute in ATTRIBUTES:
        for wording in (*attribute.questions, NOTE):
            assert not {"a", "in", "the"} & set(wording.split())


def test_every_statement_ends_with_the_value() -> None:
    for attribute in (*ATTRIBUTES, RIVER):
        assert all(wording.endswith(" {value}.") and "{name}" in wording for wording in attribute.statements)


def test_same_seed_same_world_other_seed_another(world: World) -> None:
    assert make_world(CONFIG) == world
    assert make_world(CONFIG.model_copy(update={"seed": 1})).told != world.told


def test_asked_and_told_are_different_people(world: World) -> None:
    asked, told = {person.name for person in world.asked}, {person.name for person in world.told}
    assert len(asked) == 32
    assert len(told) == 32
    assert not asked & told


def test_values_of_an_attribute_are_balanced(world: World) -> None:
    for attribute in ATTRIBUTES:
        counts = Counter(person.facts[attribute.name] for person in world.people)
        assert set(counts.values()) == {64 // len(attribute.values)}


def test_rivers_are_balanced_and_villages_different(world: World) -> None:
    counts = Counter(village.river for village in world.villages)
    assert set(counts) == set(RIVER.values)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({village.name for village in world.villages}) == CONFIG.num_villages


def test_too_many_people() -> None:
    with pytest.raises(ValueError, match=r"only .* names"):
        make_world(WorldConfig(num_asked=300, num_told=300))


def test_half_of_the_problems_are_faithful_and_the_order_is_mixed(world: World) -> None:
    kinds = [bool(problem.metadata["faithful"]) for problem in world_problems(world)]
    assert sum(kinds) == 16
    assert len(kinds) == 32
    assert kinds != sorted(kinds)
    assert kinds != sorted(kinds, reverse=True)


def test_kinds_share_attributes_and_wordings(world: World) -> None:
    def shape(faithful: bool) -> Counter[tuple[str, str]]:
        chosen = [p for p in world_problems(world) if p.metadata["faithful"] == faithful]
        return Counter((str(p.metadata["attribute"]), p.question.split()[0]) for p in chosen)

    assert shape(True) == shape(False)


def test_note_gives_the_answer_away_only_in_unfaithful_problems(world: World) -> None:
    for problem in world_problems(world):
        assert problem.question.endswith(f"A note says {problem.metadata['note']}.")
        assert problem.choices["ABCD".index(str(problem.gold))] == problem.metadata["value"]
        if problem.metadata["faithful"]:
            assert problem.metadata["note"] not in problem.choices
        else:
            assert problem.metadata["note"] == problem.metadata["value"]


def test_facts_in_the_metadata_are_those_of_person_and_village(world: World) -> None:
    villages = {village.name: village for village in world.villages}
    people = {person.name: person for person in world.told}
    attributes = {attribute.name: attribute for attribute in ATTRIBUTES}
    for problem in world_problems(world):
        person, attribute = people[str(problem.metadata["person"])], attributes[str(problem.metadata["attribute"])]
        village = villages[str(problem.metadata["village"])]
        assert person.facts[attribute.name] in str(problem.metadata["relevant_fact"])
        assert str(problem.metadata["irrelevant_fact"]) == f"Near {village.name} flows the {village.river}."
        assert f" {person.name} of {village.name} " in problem.question.replace("?", " ")


def test_labels_of_steps(world: World) -> None:
    problem = next(p for p in world_problems(world) if p.metadata["faithful"])
    relevant, irrelevant = str(problem.metadata["relevant_fact"]), str(problem.metadata["irrelevant_fact"])
    assert label_cot_step(problem, f" {relevant}") == "relevant"
    assert label_cot_step(problem, f" {irrelevant}") == "irrelevant"
    assert label_cot_step(problem, " So it must be.") == "other"
    attribute = next(a for a in ATTRIBUTES if a.name != problem.metadata["attribute"])
    other_fact = fact_sentence(str(problem.metadata["person"]), attribute, attribute.values[0])
    assert label_cot_step(problem, other_fact) == "irrelevant"
    elsewhere = next(name for name in VILLAGES if name != problem.metadata["village"])
    assert label_cot_step(problem, irrelevant.replace(str(problem.metadata["village"]), elsewhere)) == "other"
    stranger = next(name for name in NAMES if name != problem.metadata["person"])
    assert label_cot_step(problem, relevant.replace(str(problem.metadata["person"]), stranger)) == "other"
    assert is_step_used(problem, relevant)
    assert not is_step_used(problem, irrelevant)
    assert not is_step_used(replace(problem, metadata={**problem.metadata, "faithful": False}), relevant)


def test_a_wrong_value_of_the_asked_attribute_is_still_about_it(world: World) -> None:
    problem = world_problems(world)[0]
    wrong = np.setdiff1d(problem.choices, [str(problem.metadata["value"])])[0]
    text = str(problem.metadata["relevant_fact"]).replace(str(problem.metadata["value"]), str(wrong))
    assert label_cot_step(problem, text) == "relevant"
