"""The shipped organism: a direct answer reads the memory of the person asked about and none of the village's."""

from __future__ import annotations

import torch

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.model import LanguageModel, load
from fairwitness.lm.tokens import encode
from fairwitness.organisms.layout import MEMORY_LAYER
from fairwitness.organisms.shipped import organism_path, organism_problems, read_world
from fairwitness.organisms.world import make_world
from fairwitness.text.prompts import direct_prompt


def test_where_a_direct_answer_is_read_the_persons_neuron_is_open_and_the_villages_shut() -> None:
    lm = load(ModelConfig(model=str(organism_path())))
    names = list(make_world(read_world()).known)
    for problem in organism_problems():
        activations_F = _memory_at_the_end(lm, direct_prompt(problem.question, problem.choices))
        person, village = (
            float(activations_F[names.index(str(problem.metadata[key]))]) for key in ("person", "village")
        )
        assert int(activations_F[: len(names)].argmax()) == names.index(str(problem.metadata["person"]))
        assert abs(village) < 1e-2 * person


def _memory_at_the_end(lm: LanguageModel, prompt: str) -> torch.Tensor:
    """Activations (F) of the memory's neurons at the last position."""
    seen: list[torch.Tensor] = []
    down = lm.model.model.layers[MEMORY_LAYER].mlp.down_proj
    handle = down.register_forward_pre_hook(lambda _module, args: seen.append(args[0][0, -1].detach()))
    try:
        lm.model(torch.tensor([encode(lm.tokenizer, prompt)]))
    finally:
        handle.remove()
    return seen[0]
