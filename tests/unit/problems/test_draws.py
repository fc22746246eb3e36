"""Draws about an item depend on the seed and on every part of its name, and on nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

from fairwitness.problems.draws import item_rng


def test_item_rng_depends_on_every_part() -> None:
    def draw(seed: int, *item: str | int) -> int:
        return int(item_rng(seed, *item).integers(2**62))

    assert draw(0, "p", 1) == draw(0, "p", 1)
    assert len({draw(0, "p", 1), draw(1, "p", 1), draw(0, "q", 1), draw(0, "p", 2), draw(0, "p", 1, "task")}) == 5


def test_the_seed_of_a_draw_is_a_hash_anyone_can_make() -> None:
    digest = hashlib.sha256('[7,"Kiefer ☃",3]'.encode()).hexdigest()[:32]
    expected = np.random.default_rng(int(digest, 16)).permutation(50)
    assert item_rng(7, "Kiefer ☃", 3).permutation(50).tolist() == expected.tolist()
