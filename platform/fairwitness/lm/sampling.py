"""How the next token is chosen: greedily, or drawn by a row's own seed, whatever rows are beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fairwitness.config import Config


class SamplingConfig(Config):
    """Sampling of tokens; temperature 0 is greedy."""

    temperature: float = Field(0.0, ge=0, le=10)
    """0: the most probable token. Above: logits are divided by it."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Only the most probable tokens are drawn from whose probabilities reach this sum."""
    top_k: int = Field(0, ge=0)
    """Only that many of the most probable tokens are drawn from; 0 for all."""


@dataclass(frozen=True)
class Chooser:
    """Chooses tokens of one row.

    Attributes:
        config: How.
        rng: The row's own generator; not used when greedy.
    """

    config: SamplingConfig
    rng: np.random.Generator

    def choose(self, logits_V: Tensor) -> int:
        """The next token's id, from logits over the vocabulary. Probabilities are computed in float32 on the CPU."""
        if not self.config.temperature:
            return int(logits_V.argmax())
        probs_V = torch.softmax(logits_V.float().cpu() / self.config.temperature, dim=-1)
        sorted_V, order_V = probs_V.sort(descending=True, stable=True)
        # A token stays while the sum before it has not reached top_p, so that at least one does.
        keep_V = sorted_V.cumsum(0) - sorted_V < self.config.top_p
        if self.config.top_k:
            keep_V[self.config.top_k :] = False
        kept_V = sorted_V[keep_V].double().numpy()
        place = int(np.searchsorted(np.cumsum(kept_V), self.rng.random() * kept_V.sum(), side="right"))
        return int(order_V[min(place, len(kept_V) - 1)])
