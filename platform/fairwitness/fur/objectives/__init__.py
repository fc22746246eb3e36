"""Objectives of unlearning by the name that `recipe.objective` gives them.

To add one:

1. Write `objectives/NAME.py`: a frozen dataclass with the attributes and methods of `losses.Objective`, its parameters
   as its fields, its source in the docstring. It imports nothing from this package, because a task's key covers the
   code of its own objective only; a term that several share belongs in `fur/losses.py`.
2. Give `fur/config.py` the name in `ObjectiveName`, its losses and parameters in `OBJECTIVE_SETTINGS` and, for a
   parameter that no other has, a field of `RecipeConfig` that is None by default.
3. Add it to `OBJECTIVES` below.
4. Add a case with numbers worked by hand to `tests/unit/fur/test_objectives.py`, whose gradient check, batching and
   group tests take every objective in, and a row to `docs/paper_index.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairwitness.fur.losses import Objective
from fairwitness.fur.objectives.gradient_ascent import GradientAscent
from fairwitness.fur.objectives.npo_grad_diff import NpoGradDiff
from fairwitness.fur.objectives.npo_kl import NpoKl
from fairwitness.fur.objectives.simnpo import SimNpo

OBJECTIVES: Mapping[str, Callable[..., Objective]] = {
    "npo_kl": NpoKl,
    "npo_grad_diff": NpoGradDiff,
    "gradient_ascent": GradientAscent,
    "simnpo": SimNpo,
}
"""Objective by name; called with its parameters."""
