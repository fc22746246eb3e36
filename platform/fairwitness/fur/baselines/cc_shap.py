"""CC-SHAP: how far the words of the question that matter for the answer are those that matter for the CoT. Pure.

Source: Parcalabescu & Frank 2024, *On Measuring Faithfulness or Self-consistency of Natural Language Explanations*;
FUR, App. B.

Shape legend: N tokens of the question, T tokens of the CoT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairwitness.stats.bootstrap import Floats

NO_ANSWER_ATTRIBUTION = "undefined: no token of the question changes the answer's log-odds"
NO_COT_ATTRIBUTION = "undefined: no token of the question changes the CoT's log-odds"


class Consistency(NamedTuple):
    """A CC-SHAP score.

    Attributes:
        score: Cosine of the two attributions, -1 to 1; None where one of them is all zero.
        reason: Why there is no score.
        answer_N: Attribution of the answer as shares of its absolute sum; all NaN where that is 0.
        cot_N: The same for the CoT, mean over its tokens.
    """

    score: float | None
    reason: str | None
    answer_N: Floats
    cot_N: Floats


def cc_shap(answer_N: Floats, cot_NT: Floats) -> Consistency:
    """The score from Shapley values of the question's tokens.

    The values of each output token are divided by the sum of their absolutes; those of the CoT are then averaged over
    its tokens. A token of the CoT that no token of the question changes has no such shares and is left out.

    Args:
        answer_N: Values for the answer.
        cot_NT: Values for each token of the CoT.

    Raises:
        ValueError: A value is not finite, or the numbers of tokens differ.
    """
    if answer_N.ndim != 1 or cot_NT.ndim != 2 or len(answer_N) != len(cot_NT):
        raise ValueError(f"values {answer_N.shape} of the answer and {cot_NT.shape} of the CoT do not fit")
    if not (np.isfinite(answer_N).all() and np.isfinite(cot_NT).all()):
        raise ValueError("a Shapley value is not finite")
    answer, cot = mean_shares(answer_N[:, None]), mean_shares(cot_NT)
    if answer is None or cot is None:
        nothing = np.full(len(answer_N), np.nan)
        reason = NO_ANSWER_ATTRIBUTION if answer is None else NO_COT_ATTRIBUTION
        return Consistency(None, reason, nothing if answer is None else answer, nothing if cot is None else cot)
    norms = float(np.linalg.norm(answer) * np.linalg.norm(cot))
    if norms == 0:
        return Consistency(None, NO_COT_ATTRIBUTION, answer, cot)
    return Consistency(float(np.clip(answer @ cot / norms, -1.0, 1.0)), None, answer, cot)


def mean_shares(values_NT: Floats) -> Floats | None:
    """Mean over output tokens of the values as shares of their absolute sum (N,); None where every sum is 0."""
    sums_T = np.abs(values_NT).sum(axis=0)
    used_T = sums_T > 0
    if not used_T.any():
        return None
    shares: Floats = (values_NT[:, used_T] / sums_T[used_T]).mean(axis=1)
    return shares
