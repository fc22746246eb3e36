"""One model on one data set by one method: what is to be measured, and the keys of everything that comes out of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairwitness.chains.study import ChainStudy
from fairwitness.fur.config import LoraConfig, StudyConfig
from fairwitness.records.code import code_revision
from fairwitness.records.keys import key_of
from fairwitness.text.numbers import method_name

log = logging.getLogger(__name__)


FUR_CODE = ("fairwitness.fur.unlearn", "fairwitness.fur.rows", "fairwitness.fur.schedule")
"""The modules whose code, with all that they import, decides what an unlearning task gives, the objective aside."""
OBJECTIVES = "fairwitness.fur.objectives"
"""The package of objectives; of these only the code of the one in use decides."""


@dataclass(frozen=True, eq=False)
class FurStudy(ChainStudy):
    """One model on one data set, with one way of changing weights.

    Studies that differ in the method alone have the same scope: CoTs and base measurements are theirs in common.
    """

    config: StudyConfig

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of this model."""
        return self.config.rates_of(self.model)

    @property
    def lora_rank(self) -> int | None:
        """Rank of the adapters; None where FF2 itself is trained."""
        method = self.config.recipe.method
        return method.rank if isinstance(method, LoraConfig) else None

    @property
    def label(self) -> str:
        """Model and data set, and the method where it is not full FF2, for people."""
        method = self.config.recipe.method.kind
        shown = "" if method == "ff2" else f" ({method_name(method, self.lora_rank)})"
        return f"{super().label}{shown}"

    @cached_property
    def _cell_parts(self) -> dict[str, Any]:
        recipe = self.config.recipe
        return {
            "scope": self.scope_key,
            "ff2": list(self.facts.ff2_names),
            "held_out": self.data.held_out_key,
            # What other objectives can be told is None here and has no part in this one's key.
            "recipe": recipe.model_dump(mode="json", exclude_none=True),
            "measure": self.config.measure.model_dump(mode="json"),
            "code": code_revision(*FUR_CODE, f"{OBJECTIVES}.{recipe.objective}", without=(OBJECTIVES,)),
        }

    def cell_key(self, lr: float) -> str:
        """Hash of everything but problem, step and retain set that the results of one rate depend on."""
        return key_of(**self._cell_parts, lr=lr)
