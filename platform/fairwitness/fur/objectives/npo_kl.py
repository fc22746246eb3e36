"""Negative preference optimisation with a KL divergence on the retain set: the objective of FUR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fairwitness.fur.config import KlDirection
from fairwitness.fur.losses import Forgotten, Needs, Retained, Terms, kl_divergence, npo_loss


@dataclass(frozen=True)
class NpoKl:
    """`npo + kl`. The metric `log_ratio` is log π_θ/π_ref of the forgotten sequence, in nats.

    Source: FUR, Eq. 7 to 9; Zhang et al. 2024 (arXiv 2404.05868).
    """

    beta: float
    kl_direction: KlDirection
    needs: ClassVar[Needs] = Needs(reference=True, retain="divergence")

    def forget(self, given: Forgotten) -> Terms:
        """`npo`: see `npo_loss`."""
        npo_W = npo_loss(given.logprob_W, given.ref_logprob_W, beta=self.beta)
        return Terms({"npo": npo_W}, {"log_ratio": given.logprob_W - given.ref_logprob_W})

    def retain(self, given: Retained) -> Terms:
        """`kl`: see `kl_divergence`."""
        return Terms({"kl": kl_divergence(given.logprobs_NV, given.ref_logprobs_NV, direction=self.kl_direction)})

    def at_start(self) -> Mapping[str, float]:
        """(2/β)·ln 2, and no divergence."""
        return {"npo": 2.0 / self.beta * math.log(2.0), "kl": 0.0}
