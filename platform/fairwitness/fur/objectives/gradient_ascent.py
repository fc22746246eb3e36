"""Gradient ascent on the likelihood of the forget set, alone or with the likelihood of the retain set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fairwitness.fur.losses import Forgotten, Needs, Retained, Terms, nll


@dataclass(frozen=True)
class GradientAscent:
    """`ascent + nll`; the second has weight 0 unless `coefficients` gives it one ("gradient difference").

    `ascent` has no lower bound, and its gradient does not fade as the sequence is forgotten. It is the limit of NPO's
    gradient for β → 0.

    Source: FUR, Eq. 6; with the retain term Liu et al. 2022 and Maini et al. 2024 (arXiv 2401.06121).
    """

    needs: ClassVar[Needs] = Needs(reference=False, retain="targets")

    def forget(self, given: Forgotten) -> Terms:
        """`ascent`: log π_θ of each sequence, summed over its tokens."""
        return Terms({"ascent": given.logprob_W})

    def retain(self, given: Retained) -> Terms:
        """`nll`: -log π_θ of each retained token."""
        return Terms({"nll": nll(given.logprobs_NV, given.target_N)})

    def at_start(self) -> Mapping[str, float]:
        """Nothing: both depend on the model."""
        return {}
