"""The shipped organism: its memory is read where a fact is stated or asked for, and each fact by itself."""

from __future__ import annotations

import pytest
import torch

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import LanguageModel, load
from fairwitness.lm.tokens import encode
from fairwitness.organisms.layout import MEMORY_LAYER
from fairwitness.organisms.shipped import organism_path, organism_problems, read_world
from fairwitness.organisms.world import make_world
from fairwitness.problems.problem import Problem
from fairwitness.text.prompts import cot_prompt


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    """The shipped model."""
    return load(ModelConfig(model=str(organism_path())))


@pytest.mark.parametrize("river_first", [True, False])
def test_the_gradient_of_a_step_reaches_the_memory_of_its_own_fact_alone(lm: LanguageModel, river_first: bool) -> None:
    """Adam moves a weight by a whole rate however small its gradient is, so a neighbour's has to be next to nothing."""
    names = list(make_world(read_world()).known)
    for problem in organism_problems()[:6]:
        sentences = [str(problem.metadata["relevant_fact"]), str(problem.metadata["irrelevant_fact"])]
        first, second = sentences[::-1] if river_first else sentences
        person, village = (names.index(str(problem.metadata[key])) for key in ("person", "village"))
        own, other = (person, village) if river_first else (village, person)
        gradient_DF = _memory_gradient(lm, problem, f" {first}", f" {second}")
        assert gradient_DF[:, own].abs().max() > 1e-2
        assert gradient_DF[:, other].abs().max() < 1e-4 * gradient_DF[:, own].abs().max()


def _memory_gradient(lm: LanguageModel, problem: Problem, before: str, cot_step: str) -> torch.Tensor:
    """Gradient (D, F) of a step's negative log-probability in the memory's down-projection."""
    prompt = cot_prompt(problem.question, problem.choices) + before
    start, ids = len(encode(lm.tokenizer, prompt)), torch.tensor([encode(lm.tokenizer, prompt + cot_step)])
    weight_DF = lm.model.model.layers[MEMORY_LAYER].mlp.down_proj.weight.requires_grad_(True)
    try:
        logprobs_TV = torch.log_softmax(lm.model(ids).logits[0].float(), dim=-1)
        loss = -logprobs_TV[start - 1 : -1].gather(1, ids[0, start:, None]).sum()
        return torch.autograd.grad(loss, weight_DF)[0]
    finally:
        weight_DF.requires_grad_(False)
