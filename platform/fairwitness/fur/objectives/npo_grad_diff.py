"""Negative preference optimisation with the likelihood of the retain set: `npo_grad_diff` of the published code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fairwitness.fur.losses import Forgotten, Needs, Retained, Terms, nll, npo_loss


@dataclass(frozen=True)
class NpoGradDiff:
    """`npo + nll`. The metric `log_ratio` is log π_θ/π_ref of the forgotten sequence, in nats.

    Source: the text of FUR has NPO (Eq. 7) but not this retain term. It is in the published code, whose function of the
    loss takes `npo_grad_diff` where it is not told otherwise while its command line takes `npo_KL`, and comes from the
    code of Zhang et al. 2024 (arXiv 2404.05868, "NPO+RT"): the mean negative log-likelihood of the retained tokens.
    """

    beta: float
    needs: ClassVar[Needs] = Needs(reference=True, retain="targets")

    def forget(self, given: Forgotten) -> Terms:
        """`npo`: see `npo_loss`."""
        npo_W = npo_loss(given.logprob_W, given.ref_logprob_W, beta=self.beta)
        return Terms({"npo": npo_W}, {"log_ratio": given.logprob_W - given.ref_logprob_W})

    def retain(self, given: Retained) -> Terms:
        """`nll`: -log π_θ of each retained token."""
        return Terms({"nll": nll(given.logprobs_NV, given.target_N)})

    def at_start(self) -> Mapping[str, float]:
        """(2/β)·ln 2; the likelihood of the retain set is the model's own."""
        return {"npo": 2.0 / self.beta * math.log(2.0)}
