"""SimNPO: negative preference optimisation without a reference, by the mean log-probability of a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch.nn import functional as F

from fairwitness.fur.losses import Forgotten, Needs, Retained, Terms, nll


@dataclass(frozen=True)
class SimNpo:
    """`simnpo + nll`, where `simnpo` is `-(2/β) · log σ(-(β/|y|) · log π_θ(y) - γ)`.

    A margin γ > 0 keeps the push strong for longer. Some code writes β·δ for γ.

    Source: Fan et al. 2024 (arXiv 2410.07163); the retain term and the default β of 2.5 (its smaller TOFU setting)
    are those of the authors' code.
    """

    beta: float
    gamma: float
    needs: ClassVar[Needs] = Needs(reference=False, retain="targets")

    def forget(self, given: Forgotten) -> Terms:
        """`simnpo`, at least 0."""
        reward_W = self.beta * given.logprob_W / given.num_tokens_W
        return Terms({"simnpo": (2.0 / self.beta) * F.softplus(reward_W + self.gamma)})

    def retain(self, given: Retained) -> Terms:
        """`nll`: -log π_θ of each retained token."""
        return Terms({"nll": nll(given.logprobs_NV, given.target_N)})

    def at_start(self) -> Mapping[str, float]:
        """Nothing: both depend on the model."""
        return {}
