"""How the next token is chosen: greedily, or drawn by a row's own seed, whatever rows are beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairwitness.lm.config import SamplingConfig


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
