"""Shapley values of the tokens of a question, by the `shap` library. Many coalitions are evaluated at once.

Shape legend: N tokens of the question, K coalitions, T outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairwitness.errors import ItemError
from fairwitness.stats.bootstrap import Floats

Masks = npt.NDArray[np.bool_]
Game = Callable[[Masks], Floats]
"""Takes which tokens are shown in each coalition (K, N) and gives the outputs (K, T)."""


class Attribution(NamedTuple):
    """Shapley values.

    Attributes:
        values_NT: One per token and output.
        base_T: Outputs with no token shown.
        full_T: Outputs with every token shown.
        num_evaluations: Different coalitions that were evaluated.
        is_exact: Whether all coalitions were.
    """

    values_NT: Floats
    base_T: Floats
    full_T: Floats
    num_evaluations: int
    is_exact: bool

    @property
    def gap(self) -> float:
        """By how much the values miss their identity, sum over tokens = full - base: the largest difference."""
        return float(np.abs(self.values_NT.sum(axis=0) - (self.full_T - self.base_T)).max())


def shapley_values(game: Game, num_tokens: int, *, max_evaluations: int, seed: int) -> Attribution:
    """Shapley values of N tokens.

    All 2^N coalitions where they fit into `max_evaluations` (`shap.ExactExplainer`). Else random orders, each gone
    through forwards and backwards (`shap.PermutationExplainer`), which is unbiased and keeps the sum exact.

    Args:
        game: The outputs of coalitions; the same coalition always gives the same.
        num_tokens: N, at least 1.
        max_evaluations: Coalitions to evaluate at most.
        seed: Seed of the random orders.

    Raises:
        ItemError: There is no token, or not even one order fits.
    """
    if num_tokens < 1:
        raise ItemError("the question has no token")
    needed = 2 * num_tokens + 1
    is_exact = num_tokens < 60 and 2**num_tokens <= max_evaluations
    if not is_exact and needed > max_evaluations:
        raise ItemError(
            f"the question has {num_tokens} tokens and needs {needed} evaluations; raise max_evaluations "
            f"({max_evaluations})"
        )
    known = _Known(game)
    values = _explain(known, num_tokens, is_exact, max_evaluations, seed)
    everything = known(np.array([np.zeros(num_tokens), np.ones(num_tokens)]))
    return Attribution(values, everything[0], everything[1], len(known), is_exact)


def _explain(known: _Known, num_tokens: int, is_exact: bool, max_evaluations: int, seed: int) -> Floats:
    import shap

    nothing, everything = np.zeros((1, num_tokens)), np.ones((1, num_tokens))
    masker = shap.maskers.Independent(nothing)
    with _global_numpy_seed_restored():
        if is_exact:
            found = shap.ExactExplainer(known, masker)(everything, max_evals=max_evaluations, silent=True)
        else:
            explainer = shap.PermutationExplainer(known, masker, seed=seed)
            found = explainer(everything, max_evals=max_evaluations, silent=True)
    # With one output the library leaves out its axis.
    return np.asarray(found.values[0], dtype=np.float64).reshape(num_tokens, -1)


class _Known:
    """A game that remembers: a coalition is evaluated once, however often the library asks."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._outputs: dict[bytes, Floats] = {}

    def __len__(self) -> int:
        return len(self._outputs)

    def __call__(self, shown_KN: Floats) -> Floats:
        masks_KN = np.asarray(shown_KN) > 0.5
        names = [mask.tobytes() for mask in masks_KN]
        new = {name: row for row, name in enumerate(names) if name not in self._outputs}
        if new:
            outputs = np.asarray(self._game(masks_KN[list(new.values())]), dtype=np.float64)
            self._outputs |= dict(zip(new, outputs, strict=True))
        return np.stack([self._outputs[name] for name in names])


@contextmanager
def _global_numpy_seed_restored() -> Iterator[None]:
    # shap seeds and draws from numpy's global generator.
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
