"""Checks a trained organism: does it answer, and is its ground truth true.

The ground truth is checked by interventions that share nothing with FUR, so it does not rest on the method it judges.

Shape legend: B rows, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.generation import generate_greedy
from fairwitness.lm.model import LanguageModel, checksum, load
from fairwitness.lm.scoring import LetterAnswer, answers
from fairwitness.lm.tokens import PromptEncoder, bos_ids, decode, encode
from fairwitness.organisms.layout import MEMORY_LAYER
from fairwitness.organisms.lexicon import ATTRIBUTES, Attribute
from fairwitness.organisms.shipped import organism_path, read_world
from fairwitness.organisms.world import make_world, world_problems
from fairwitness.problems.problem import Problem

_MAX_TOKENS = 8192
_MAX_NEW_TOKENS = 40
_NUM_EDITS = 24
_EDIT_UPDATES = 20
_EDIT_RATE = 2e-3


@dataclass(frozen=True)
class _Subject:
    """A loaded organism with its problems."""

    lm: LanguageModel
    encoder: PromptEncoder
    problems: tuple[Problem, ...]

    def answer(self, problems: Sequence[Problem], prompts: Sequence[Sequence[int]] | None = None) -> list[LetterAnswer]:
        """Answers to the problems' direct prompts, or to the prompts given."""
        prompts = prompts or [self.encoder.direct(problem) for problem in problems]
        letter_ids = [self.encoder.letter_ids(len(problem.choices)) for problem in problems]
        return answers(self.lm.model, prompts, letter_ids, max_tokens=_MAX_TOKENS)

    def direct_about(self, problem: Problem, key: str, other: str) -> list[int]:
        """The direct prompt with the name in the metadata's `key` replaced."""
        name = str(problem.metadata[key])
        return list(self.encoder.direct(replace(problem, question=problem.question.replace(name, other))))

    def of_kind(self, faithful: bool) -> list[Problem]:
        """The problems of one kind."""
        return [problem for problem in self.problems if problem.metadata["faithful"] == faithful]


def check_organism(folder: Path | None = None) -> dict[str, float | int]:
    """Measures an organism's answers and tests its ground truth by intervention.

    Args:
        folder: A trained organism; by default the shipped one.

    Returns:
        Shares between 0 and 1 (a larger share is better unless the name says `moved` of an unfaithful problem), the
        number of problems and of parameters:

        - `direct_accuracy`, `cot_accuracy`, `agreement` (direct = CoT answer), `states_fact`, `states_both` (the CoT
          consists of the fact in question and the other fact);
        - `margin_*`: median difference in nats between the best and the second letter of the direct answer;
        - `note_swapped_*`: a note with another value of its attribute moves the answer to that value (unfaithful), or
          leaves it (faithful);
        - `memory_swapped_*`: with what the memory adds before the answer taken from a question about another person,
          the answer moves to the other's value;
        - `village_swapped_*_kept`: with what all layers' feed-forward parts add at the village taken from another
          village, the answer stays;
        - `river_forgotten_*_kept`: with every village's column of the memory set to zero, the answer stays (the river
          that the CoT states is of no use to it), while the CoT states the river no more in `river_forgotten_unstated`;
        - `statement_edited_*`: FF2 is fitted to a new value in statements (no question, no letter), and the answer
          moves to it.

    Raises:
        DataError: The folder holds no world.
        ModelError: The folder holds no usable model.
    """
    folder = folder or organism_path()
    world = make_world(read_world(folder))
    lm = load(ModelConfig(model=str(folder)))
    subject = _Subject(lm, PromptEncoder(lm.tokenizer, "plain"), tuple(world_problems(world)))
    return {
        "num_problems": len(subject.problems),
        "num_parameters": sum(parameter.numel() for parameter in lm.model.parameters()),
        **_answers_checked(subject),
        **_notes_checked(subject),
        **_memories_checked(subject),
        **_villages_checked(subject, [village.name for village in world.villages]),
        **_rivers_checked(subject, len(world.people), len(world.known)),
        **_edits_checked(subject),
    }


def _answers_checked(subject: _Subject) -> dict[str, float]:
    problems = subject.problems
    prompts = [subject.encoder.cot(problem) for problem in problems]
    cots = generate_greedy(subject.lm, prompts, _MAX_NEW_TOKENS, batch_size=32)
    texts = [decode(subject.lm.tokenizer, cot.ids) for cot in cots]
    direct = subject.answer(problems)
    after_cot = subject.answer(
        problems, [subject.encoder.cot_answer(problem, cot.ids) for problem, cot in zip(problems, cots, strict=True)]
    )
    facts = [(str(p.metadata["relevant_fact"]), str(p.metadata["irrelevant_fact"])) for p in problems]
    margins = {
        kind: float(np.median([_margin(a) for a, p in zip(direct, problems, strict=True) if _kind(p) == kind]))
        for kind in ("faithful", "unfaithful")
    }
    right = [(_letter(d) == p.gold, _letter(c) == p.gold) for d, c, p in zip(direct, after_cot, problems, strict=True)]
    return {
        "direct_accuracy": float(np.mean([d for d, _ in right])),
        "cot_accuracy": float(np.mean([c for _, c in right])),
        "agreement": float(np.mean([d.index == c.index for d, c in zip(direct, after_cot, strict=True)])),
        "states_fact": float(np.mean([fact in text for text, (fact, _) in zip(texts, facts, strict=True)])),
        "states_both": float(np.mean([text.strip() in _orders(both) for text, both in zip(texts, facts, strict=True)])),
        "margin_faithful_nats": margins["faithful"],
        "margin_unfaithful_nats": margins["unfaithful"],
    }


def _notes_checked(subject: _Subject) -> dict[str, float]:
    """Puts another value into the note: of the choices in an unfaithful problem, of the note's attribute else."""
    result = {}
    for faithful in (True, False):
        problems = subject.of_kind(faithful)
        values = [_other_note(problem) for problem in problems]
        changed = [
            replace(problem, question=problem.question.replace(f"says {problem.metadata['note']}.", f"says {value}."))
            for problem, value in zip(problems, values, strict=True)
        ]
        chosen = [problem.choices[a.index] for problem, a in zip(problems, subject.answer(changed), strict=True)]
        if faithful:
            before = [problem.choices[a.index] for problem, a in zip(problems, subject.answer(problems), strict=True)]
            result["note_swapped_faithful_kept"] = float(np.mean([a == b for a, b in zip(chosen, before, strict=True)]))
        else:
            result["note_swapped_unfaithful_moved"] = float(
                np.mean([a == b for a, b in zip(chosen, values, strict=True)])
            )
    return result


def _memories_checked(subject: _Subject) -> dict[str, float]:
    """Takes what the memory adds at the answer from the same question about a person who has another of the choices."""
    moved: dict[str, list[bool]] = {"faithful": [], "unfaithful": []}
    for problem in subject.problems:
        donor = next((other for other in subject.problems if _can_lend(other, problem)), None)
        if donor is None:
            continue
        ids, lent = (
            subject.encoder.direct(problem),
            subject.direct_about(problem, "person", str(donor.metadata["person"])),
        )
        memory_D = _feed_forward_outputs(subject.lm, lent, len(lent) - 1)[MEMORY_LAYER]
        with _patched(subject.lm, {MEMORY_LAYER: memory_D}, len(ids) - 1):
            answer = subject.answer([problem], [ids])[0]
        moved[_kind(problem)].append(problem.choices[answer.index] == donor.metadata["value"])
    return {f"memory_swapped_{kind}_moved": float(np.mean(values)) for kind, values in moved.items() if values}


def _villages_checked(subject: _Subject, villages: Sequence[str]) -> dict[str, float]:
    """Takes what the feed-forward layers add at the village from the next village of the world."""
    kept: dict[str, list[bool]] = {"faithful": [], "unfaithful": []}
    for problem, before in zip(subject.problems, subject.answer(subject.problems), strict=True):
        village = str(problem.metadata["village"])
        other = villages[(villages.index(village) + 1) % len(villages)]
        ids, lent = subject.encoder.direct(problem), subject.direct_about(problem, "village", other)
        outputs = _feed_forward_outputs(subject.lm, lent, _position(subject, lent, other))
        with _patched(subject.lm, dict(enumerate(outputs)), _position(subject, ids, village)):
            answer = subject.answer([problem], [ids])[0]
        kept[_kind(problem)].append(answer.index == before.index)
    return {f"village_swapped_{kind}_kept": float(np.mean(values)) for kind, values in kept.items()}


def _rivers_checked(subject: _Subject, first: int, end: int) -> dict[str, float]:
    """Sets the memory of all villages, neurons `first` to `end`, to zero."""
    before = subject.answer(subject.problems)
    weight_DF = subject.lm.model.model.layers[MEMORY_LAYER].mlp.down_proj.weight
    columns_DF = weight_DF[:, first:end].detach().clone()
    prompts = [subject.encoder.cot(problem) for problem in subject.problems]
    with torch.no_grad():
        weight_DF[:, first:end] = 0
    try:
        after = subject.answer(subject.problems)
        cots = generate_greedy(subject.lm, prompts, _MAX_NEW_TOKENS, batch_size=32)
    finally:
        with torch.no_grad():
            weight_DF[:, first:end] = columns_DF
    texts = [decode(subject.lm.tokenizer, cot.ids) for cot in cots]
    kept = {
        kind: [a.index == b.index for a, b, p in zip(after, before, subject.problems, strict=True) if _kind(p) == kind]
        for kind in ("faithful", "unfaithful")
    }
    unstated = [str(p.metadata["irrelevant_fact"]) not in text for p, text in zip(subject.problems, texts, strict=True)]
    shares = {f"river_forgotten_{kind}_kept": float(np.mean(values)) for kind, values in kept.items()}
    return {**shares, "river_forgotten_unstated": float(np.mean(unstated))}


def _edits_checked(subject: _Subject) -> dict[str, float]:
    """Fits FF2 to a new value in all statements but that of the CoT, one problem at a time."""
    result = {}
    for faithful in (True, False):
        moved = []
        for problem in subject.of_kind(faithful)[:_NUM_EDITS]:
            value = _wrong_choice(problem)
            with _edited(subject, problem, value):
                answer = subject.answer([problem])[0]
            moved.append(problem.choices[answer.index] == value)
        result[f"statement_edited_{_kind_name(faithful)}_moved"] = float(np.mean(moved))
    return result


@contextmanager
def _edited(subject: _Subject, problem: Problem, value: str) -> Iterator[None]:
    weights = subject.lm.ff2_weights()
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    digest = checksum(before)
    tokenizer = subject.lm.tokenizer
    rows = [
        [*bos_ids(tokenizer), *encode(tokenizer, " " + text.format(name=problem.metadata["person"], value=value)[:-1])]
        for text in _attribute(problem).statements[1:]
    ]
    optimizer = torch.optim.Adam(list(weights.values()), lr=_EDIT_RATE)
    for weight in weights.values():
        weight.requires_grad_(True)
    try:
        for _ in range(_EDIT_UPDATES):
            losses = [
                -torch.log_softmax(subject.lm.model(torch.tensor([ids[:-1]])).logits[0, -1].float(), dim=-1)[ids[-1]]
                for ids in rows
            ]
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
        yield
    finally:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.requires_grad_(False)
                weight.copy_(before[name])
                weight.grad = None
    if checksum(dict(weights)) != digest:
        raise RuntimeError("the weights were not restored after an edit")


@torch.no_grad()
def _feed_forward_outputs(lm: LanguageModel, ids: Sequence[int], position: int) -> list[Tensor]:
    outputs: list[Tensor] = []
    handles = [
        layer.mlp.register_forward_hook(lambda _module, _args, out: outputs.append(out[0, position].clone()))
        for layer in lm.model.model.layers
    ]
    try:
        lm.model(torch.tensor([list(ids)]))
    finally:
        for handle in handles:
            handle.remove()
    return outputs


@contextmanager
def _patched(lm: LanguageModel, outputs: Mapping[int, Tensor], position: int) -> Iterator[None]:
    def hook(output_D: Tensor) -> Any:
        def put(_module: Any, _args: Any, out_BTD: Tensor) -> Tensor:
            patched_BTD = out_BTD.clone()
            patched_BTD[:, position] = output_D
            return patched_BTD

        return put

    layers = lm.model.model.layers
    handles = [layers[number].mlp.register_forward_hook(hook(output_D)) for number, output_D in outputs.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _position(subject: _Subject, ids: Sequence[int], name: str) -> int:
    (name_id,) = encode(subject.lm.tokenizer, f" {name}")
    return list(ids).index(name_id)


def _can_lend(other: Problem, problem: Problem) -> bool:
    same = other.metadata["attribute"] == problem.metadata["attribute"]
    return same and other.metadata["value"] in problem.choices and other.metadata["value"] != problem.metadata["value"]


def _other_note(problem: Problem) -> str:
    if not problem.metadata["faithful"]:
        return _wrong_choice(problem)
    note = problem.metadata["note"]
    values = next(attribute.values for attribute in ATTRIBUTES if note in attribute.values)
    return values[(values.index(str(note)) + 1) % len(values)]


def _wrong_choice(problem: Problem) -> str:
    return next(choice for choice in problem.choices if choice != problem.metadata["value"])


def _attribute(problem: Problem) -> Attribute:
    return next(attribute for attribute in ATTRIBUTES if attribute.name == problem.metadata["attribute"])


def _orders(facts: tuple[str, str]) -> tuple[str, str]:
    return " ".join(facts), " ".join(reversed(facts))


def _letter(answer: LetterAnswer) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[answer.index]


def _margin(answer: LetterAnswer) -> float:
    second, first = sorted(answer.probs)[-2:]
    return float(np.log(first) - np.log(max(second, 1e-30)))


def _kind(problem: Problem) -> str:
    return _kind_name(bool(problem.metadata["faithful"]))


def _kind_name(faithful: bool) -> str:
    return "faithful" if faithful else "unfaithful"
