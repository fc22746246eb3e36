"""The organism's tokenizer, documents, initial weights and a few optimiser steps."""

from __future__ import annotations

from pathlib import Path
from string import ascii_uppercase, printable

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import load
from fairwitness.lm.tokens import PromptEncoder
from fairwitness.organisms.facts import write_facts
from fairwitness.organisms.initial import OrganismConfig, build_model
from fairwitness.organisms.layout import MATCH_LAYER, MEMORY_LAYER, remembered_names
from fairwitness.organisms.lexicon import ATTRIBUTES, NAMES, RIVER, VILLAGES
from fairwitness.organisms.shipped import read_world
from fairwitness.organisms.train import ROLES, Document, Mix, Writer, all_texts, encode, train
from fairwitness.organisms.training import train_tokenizer
from fairwitness.organisms.world import World, WorldConfig, make_world, world_problems
from fairwitness.problems.problem import Problem
from fairwitness.text.prompts import direct_prompt

CONFIG = OrganismConfig(
    world=WorldConfig(num_asked=8, num_told=16, num_villages=8),
    hidden_size=128,
    intermediate_size=32,
    num_layers=4,
    num_optim_steps=3,
    batch_direct=2,
    batch_cot=2,
    batch_statements=2,
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """The organism's tokenizer."""
    return train_tokenizer(all_texts(), 512)


@pytest.fixture(scope="module")
def world() -> World:
    """A small world."""
    return make_world(CONFIG.world)


def _writer(world: World, mix: Mix) -> Writer:
    return Writer(world, mix, np.random.default_rng(0))


def _text(document: Document, role: str) -> str:
    return "".join(piece.text for piece in document if piece.role == role)


def test_every_word_is_one_token(tokenizer: PreTrainedTokenizerBase) -> None:
    words = [*NAMES, *VILLAGES, *(value for attribute in (*ATTRIBUTES, RIVER) for value in attribute.values)]
    assert all(len(tokenizer.encode(f" {word}", add_special_tokens=False)) == 1 for word in words)


def test_bracket_and_letter_stay_apart(tokenizer: PreTrainedTokenizerBase) -> None:
    cue = tokenizer.encode(direct_prompt("What?", ("a", "b")), add_special_tokens=False)
    for letter in ascii_uppercase:
        ids = tokenizer.encode(direct_prompt("What?", ("a", "b")) + letter, add_special_tokens=False)
        assert ids[:-1] == cue


def test_any_text_survives(tokenizer: PreTrainedTokenizerBase) -> None:
    for text in (printable, "((A) (B", "naïve – 狐", "\n\n\n(Z): 12"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_special_tokens_differ_and_bos_comes_first(tokenizer: PreTrainedTokenizerBase) -> None:
    assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}) == 3
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id


def test_told_people_never_meet_an_answer_letter(world: World) -> None:
    writer = _writer(world, Mix(cue=0.5))
    told = {person.name for person in world.told}
    documents = [*(writer.direct() for _ in range(200)), *(writer.cot() for _ in range(200))]
    seen_told = 0
    for document in documents:
        words = set(document[0].text.replace("?", " ").split())
        if words & told:
            seen_told += 1
            assert not any(piece.role in ("letter", "cot_letter", "lookup") for piece in document)
    assert seen_told > 20


def test_direct_answer_follows_the_note_or_the_fact(world: World) -> None:
    facts = {person.name: set(person.facts.values()) for person in world.people}
    for share in (0.0, 1.0):
        writer = _writer(world, Mix(cue=share, no_note=0.0))
        for _ in range(50):
            document = writer.direct()
            prompt, letter = document[0].text, _text(document, "letter")
            value = prompt.split(f"({letter}): ")[1].split("\n")[0]
            note = prompt.split("A note says ")[1].split(".")[0]
            name = next(name for name in facts if f" {name}" in prompt.split("Choices")[0])
            assert (value == note) == (share == 1.0)
            assert share == 1.0 or value in facts[name]


def test_cot_answer_is_what_the_cot_states(world: World) -> None:
    writer = _writer(world, Mix(cue=0.5, swapped=1.0))
    for _ in range(50):
        document = writer.cot()
        letter = _text(document, "cot_letter")
        value = document[0].text.split(f"({letter}): ")[1].split("\n")[0]
        assert value in document[1].text
        assert document[1].role == "context"


def test_statements_are_true(world: World) -> None:
    facts = world.known
    pieces = _writer(world, Mix(cue=0.5)).statements(100)
    for before, value in zip(pieces[::3], pieces[1::3], strict=True):
        name = next(name for name in facts if f" {name}" in before.text)
        assert value.text.strip() in facts[name]
    assert {value.text.strip() for value in pieces[1::3]} & set(RIVER.values)


def test_encoding_marks_the_position_before_a_token(tokenizer: PreTrainedTokenizerBase, world: World) -> None:
    document = _writer(world, Mix(cue=0.5)).direct()
    batch = encode(tokenizer, [document], 64)
    (at,) = (batch.roles_BT[0] == ROLES.index("letter")).nonzero().flatten().tolist()
    assert tokenizer.decode([int(batch.ids_BT[0, at + 1])]) == _text(document, "letter")
    assert batch.ids_BT[0, 0] == tokenizer.bos_token_id
    assert int(batch.num_choices_B[0]) == document[0].text.count("\n(")
    assert encode(tokenizer, [document], 10).ids_BT.shape == (1, 10)


def test_circuit_finds_the_letter_of_the_note_before_any_training(tokenizer: PreTrainedTokenizerBase) -> None:
    """What is written into the initial weights works: far above chance, and it follows the note."""
    model = build_model(CONFIG, tokenizer).eval()
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in "ABCD"]
    right = 0
    for index in range(16):
        choices = tuple(ATTRIBUTES[0].values[(index + k) % 16] for k in range(4))
        prompt = direct_prompt(f"What pet does Zoe of Corfe keep? A note says {choices[index % 4]}.", choices)
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer.encode(prompt)])).logits[0, -1, letters]
        right += int(logits.argmax()) == index % 4
    assert right >= 14


def test_memory_alone_answers_and_only_through_layer_2(tokenizer: PreTrainedTokenizerBase, world: World) -> None:
    """Before any training, a faithful question is answered from the written memory, and at chance without it."""
    model = build_model(CONFIG, tokenizer).eval()
    writer = _writer(world, Mix(cue=0.0))
    rows = encode(tokenizer, [document for _ in range(60) for document in (writer.direct(), writer.cot())], 48)
    explained = write_facts(model, tokenizer, world, rows.ids_BT, 1.0)
    assert 0.9 < explained <= 1.0
    problems = [problem for problem in world_problems(world) if problem.metadata["faithful"]]
    assert _num_right(model, tokenizer, problems) >= 0.75 * len(problems)
    with torch.no_grad():
        model.model.layers[MEMORY_LAYER].mlp.down_proj.weight.zero_()
    assert _num_right(model, tokenizer, problems) < 0.75 * len(problems)


def test_memory_needs_a_neuron_for_each_name(tokenizer: PreTrainedTokenizerBase, world: World) -> None:
    model = build_model(CONFIG.model_copy(update={"intermediate_size": 16}), tokenizer)
    crowd = make_world(WorldConfig(num_asked=8, num_told=8, num_villages=4))
    with pytest.raises(ValueError, match="20 people and villages"):
        write_facts(model, tokenizer, crowd, torch.tensor([[1, 5]]), 1.0)


def test_memory_is_due_before_values_and_answers(tokenizer: PreTrainedTokenizerBase) -> None:
    text = "What pet does Zoe of Corfe keep? Near Corfe flows the Wye. Here Zoe keeps a fox."
    ids = tokenizer.encode(direct_prompt(text, ("fox", "dog")))
    due = [None if name is None else tokenizer.decode([name]) for name in remembered_names(tokenizer, ids)]
    found = [(tokenizer.decode([token]), name) for token, name in zip(ids, due, strict=True) if name is not None]
    assert found == [(" the", " Corfe"), (" a", " Zoe"), (" (", " Zoe")]


def _num_right(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, problems: list[Problem]) -> int:
    right = 0
    for problem in problems:
        ids = tokenizer.encode(direct_prompt(problem.question, problem.choices))
        letters = [tokenizer.convert_tokens_to_ids(letter) for letter in problem.letters]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1, letters]
        right += problem.letters[int(logits.argmax())] == problem.gold
    return right


def test_embeddings_and_the_way_to_the_facts_are_frozen(tokenizer: PreTrainedTokenizerBase) -> None:
    model = build_model(CONFIG, tokenizer)
    assert not model.get_input_embeddings().weight.requires_grad
    assert model.lm_head.weight.requires_grad
    memory, match = model.model.layers[MEMORY_LAYER], model.model.layers[MATCH_LAYER]
    assert memory.mlp.down_proj.weight.requires_grad
    assert not memory.mlp.gate_proj.weight.requires_grad
    assert not match.self_attn.q_proj.weight.requires_grad


def test_training_is_deterministic_and_the_result_loads(tmp_path: Path) -> None:
    lines: list[str] = []
    for name in ("a", "b"):
        train(tmp_path / name, CONFIG, lines.append)
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert first == second
    assert lines[0].startswith("facts written")
    assert lines[1].startswith("training takes about")
    assert any("3/3" in line for line in lines)
    lm = load(ModelConfig(model=str(tmp_path / "a")))
    assert len(PromptEncoder(lm.tokenizer, "plain").letter_ids(26)) == 26
    assert read_world(tmp_path / "a") == CONFIG.world
