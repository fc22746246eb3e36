"""Configuration of a search for the learning rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, log
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fairwitness.config import Config
from fairwitness.fur.config import Rate, StudyConfig
from fairwitness.lm.config import ModelConfig

if TYPE_CHECKING:
    from fairwitness.fur.search.policies import Policy


def _several(rates: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(rates)) < 2:
        raise ValueError(
            "there is nothing to choose among fewer than two rates; give more, or measure one with fairwitness sweep"
        )
    return rates


Rates = Annotated[tuple[Rate, ...], AfterValidator(_several)]


class GridConfig(Config):
    """Every rate on every problem, as in the paper."""

    kind: Literal["grid"] = "grid"
    rates: Rates
    """Learning rates, at least two."""
    max_concurrent: int = Field(4, ge=1, le=1000)
    """Rates that are measured at the same time, at most."""

    @property
    def candidates(self) -> tuple[float, ...]:
        """The rates, each once, lowest first."""
        return refine(self.rates, None)

    def policy(self, min_specificity: float) -> Policy:
        """What plans the trials."""
        del min_specificity
        from fairwitness.fur.search.policies import GridPolicy

        return GridPolicy(self.candidates)

    def batches(self, problems: Sequence[str]) -> list[Sequence[str]]:
        """All problems in one batch."""
        return [problems] if problems else []


class BracketConfig(Config):
    """Brackets the highest rate that keeps specificity, with few rates and few problems."""

    kind: Literal["bracket"] = "bracket"
    rates: Rates
    """Learning rates to choose from, or the two ends of a range if `resolution` is given."""
    resolution: float | None = Field(None, ge=1.05, le=1000)
    """Largest factor between one candidate and the next: further rates are put between the given ones, evenly on a log
    scale. None: only the given ones."""
    batch_problems: int = Field(10, ge=1)
    """Problems after which it is decided whether a rate needs more."""
    max_concurrent: int = Field(1, ge=1, le=100)
    """Rates that are measured at the same time. More than one uses more workers at once, and more tasks in all."""

    @property
    def candidates(self) -> tuple[float, ...]:
        """The given rates and those in between, each once, lowest first."""
        return refine(self.rates, self.resolution)

    def policy(self, min_specificity: float) -> Policy:
        """What plans the trials."""
        from fairwitness.fur.search.policies import BracketPolicy

        return BracketPolicy(self.candidates, min_specificity, self.max_concurrent)

    def batches(self, problems: Sequence[str]) -> list[Sequence[str]]:
        """Problems in batches of `batch_problems`; the last one may be smaller."""
        size = self.batch_problems
        return [problems[start : start + size] for start in range(0, len(problems), size)]


SearcherConfig = Annotated[GridConfig | BracketConfig, Field(discriminator="kind")]


class LrSearchConfig(StudyConfig):
    """A search for the learning rate of every model on every data set, by the recipe's method."""

    search: SearcherConfig
    """Which rates there are, and how they are searched."""
    search_by_model: dict[str, SearcherConfig] = Field(default_factory=dict)
    """Another search for some models, by their shown name."""
    min_problems: int = Field(30, ge=1)
    """Fewest problems that a rate may be chosen on."""

    def search_of(self, model: ModelConfig) -> GridConfig | BracketConfig:
        """The search of one model."""
        return self.search_by_model.get(model.shown_name, self.search)

    def rates_of(self, model: ModelConfig) -> tuple[float, ...]:
        """Every rate that may be tried for one model, lowest first."""
        return self.search_of(model).candidates

    @model_validator(mode="after")
    def _searches_have_models(self) -> Self:
        self.must_be_models("search_by_model", self.search_by_model)
        return self


def refine(rates: Iterable[float], resolution: float | None) -> tuple[float, ...]:
    """Rates, lowest first, with further ones between neighbours, evenly on a log scale.

    Args:
        rates: The rates, each above 0.
        resolution: Largest factor from one rate to the next, above 1; None adds none. Added rates have three
            significant digits, so that they can be written down.
    """
    given = sorted(set(rates))
    if resolution is None:
        return tuple(given)
    found = set(given)
    for low, high in pairwise(given):
        # A gap of exactly the resolution needs no rate in it.
        parts = ceil(round(log(high / low) / log(resolution), 9))
        found |= {float(f"{low * (high / low) ** (part / parts):.3g}") for part in range(1, parts)}
    return tuple(sorted(found))
