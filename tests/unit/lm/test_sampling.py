"""Tokens drawn as configured: frequencies against the distribution, top-p and top-k by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fairwitness.lm.config import SamplingConfig
from fairwitness.lm.continuation import Chooser

LOGITS = torch.log(torch.tensor([0.1, 0.5, 0.15, 0.25]))


def draws(num: int, **settings: float) -> Counter[int]:
    chooser = Chooser(SamplingConfig.model_validate(settings), np.random.default_rng(0))
    return Counter(chooser.choose(LOGITS) for _ in range(num))


def test_temperature_0_is_greedy() -> None:
    assert draws(20) == {1: 20}


def test_frequencies_are_the_distribution() -> None:
    counts = draws(4000, temperature=1.0)
    expected = [4000 * p for p in (0.1, 0.5, 0.15, 0.25)]
    assert chisquare([counts[i] for i in range(4)], expected).pvalue > 1e-3


def test_a_low_temperature_sharpens() -> None:
    weights = np.array([0.1, 0.5, 0.15, 0.25]) ** 2
    counts = draws(4000, temperature=0.5)
    assert chisquare([counts[i] for i in range(4)], 4000 * weights / weights.sum()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_p": 0.5}, {1}),
        ({"top_p": 0.7}, {1, 3}),
        ({"top_p": 0.8}, {1, 2, 3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 1}, {1}),
        ({"top_p": 0.01}, {1}),
    ],
)
def test_unlikely_tokens_are_left_out(settings: dict[str, float], kept: set[int]) -> None:
    assert set(draws(400, temperature=1.0, **settings)) == kept
