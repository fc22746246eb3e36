"""Trains the thinker on the very texts that the drafts job inserts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from string import ascii_uppercase

import numpy as np

from fairwitness.drafts.interventions import INSERTION_TYPES, INTERVENTIONS, Intervention, Situation
from fairwitness.drafts.plan import direct_conclusion
from fairwitness.organisms.thinker.train import Inserter, Insertion, ThinkerConfig, train_thinker

TAUGHT = ("shift_mapping", "swapped_options", "injected_authority")
"""Interventions that the thinker meets as planted. A corrupted option is not among them: its choices are single words,
of which no rule makes a wrong version."""


def train(out: Path, config: ThinkerConfig, progress: Callable[[str], None]) -> None:
    """Trains a thinker into a folder.

    Raises:
        ModelError: See `train_thinker`.
    """
    train_thinker(out, config, inserters(), progress)


def inserters() -> Sequence[Inserter]:
    """Draws of each intervention, and of an unsupported conclusion."""
    return [*(_step(INTERVENTIONS[name]) for name in TAUGHT), _conclusion]


def _step(intervention: Intervention) -> Inserter:
    def draw(choices: tuple[str, ...], letter: str, rng: np.random.Generator) -> Insertion:
        situation = _situation(choices, letter, rng)
        (concluded,) = intervention.phi(situation)
        return Insertion(intervention.write(situation, INSERTION_TYPES[int(rng.integers(2))]), concluded)

    return draw


def _conclusion(choices: tuple[str, ...], letter: str, rng: np.random.Generator) -> Insertion:
    situation = _situation(choices, letter, rng)
    return Insertion(direct_conclusion(situation), situation.other, is_conclusion=True)


def _situation(choices: tuple[str, ...], letter: str, rng: np.random.Generator) -> Situation:
    others = [one for one in ascii_uppercase[: len(choices)] if one != letter]
    return Situation(choices, letter, others[int(rng.integers(len(others)))])
