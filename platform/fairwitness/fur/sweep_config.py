"""Configuration of a FUR sweep over models, data sets and learning rates, and the part of it that other jobs share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from fairwitness.config import Config
from fairwitness.fleet.config import PoolConfig
from fairwitness.fur.config import CotConfig, EngineConfig, FullFF2Config, MeasureConfig, RecipeConfig
from fairwitness.fur.methods import MethodConfig, Rate
from fairwitness.lm.config import ModelConfig
from fairwitness.problems.config import DataConfig
from fairwitness.problems.draws import Seed
from fairwitness.records.run_dir import OutputConfig, RunName
from fairwitness.records.tracker import TrackingConfig


class StudyConfig(Config):
    """What every job that unlearns is told: models, data sets, recipe, workers. The jobs add their learning rates."""

    name: RunName
    """Name of the run. The same name goes on with an earlier run of it."""
    seed: Seed = 0
    """Seed of every random draw."""
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    """The models."""
    data_sets: tuple[DataConfig, ...] = Field(min_length=1)
    """The data sets."""
    recipe: RecipeConfig = RecipeConfig()
    """How a cot_step is unlearned."""
    cot: CotConfig = CotConfig()
    """How CoTs are generated."""
    measure: MeasureConfig = MeasureConfig()
    """What is measured."""
    min_specificity: float = Field(95.0, ge=0, le=100)
    """Percent of held-out answers that must stay, after rounding, for a rate to be chosen."""
    engine: EngineConfig = EngineConfig()
    """How the engine uses its device."""
    pool: PoolConfig = PoolConfig()
    """The workers."""
    output: OutputConfig = OutputConfig()
    """Where results are written."""
    tracking: TrackingConfig = TrackingConfig()
    """Where MLflow is."""

    def rates_of(self, model: ModelConfig) -> tuple[float, ...]:
        """The learning rates of one model, each once; a job says which."""
        raise NotImplementedError

    def by_method(self) -> Sequence[StudyConfig]:
        """One configuration per method; this one alone where there is one method."""
        return (self,)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [model.shown_name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"models: two have the same name among {', '.join(names)}; give each a `name`")
        if self.pool.num_gpus_per_actor > 0 and all(model.device == "cpu" for model in self.models):
            raise ValueError("pool.num_gpus_per_actor is above 0, but every model has device: cpu; set device: cuda")
        if self.pool.kind == "ray" and self.pool.num_gpus_per_actor == 0:
            on_gpu = [model.shown_name for model in self.models if model.device == "cuda"]
            if on_gpu:
                raise ValueError(f"{on_gpu[0]} has device: cuda; give its actors a share: pool.num_gpus_per_actor")
        return self

    def must_be_models(self, key: str, names: Iterable[str]) -> None:
        """Makes sure that settings by model name models of this run.

        Raises:
            ValueError: One does not.
        """
        known = [model.shown_name for model in self.models]
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise ValueError(f"{key}: {unknown[0]!r} is no model of this run ({', '.join(known)})")


class FurSweepConfig(StudyConfig):
    """A FUR sweep: every model on every data set at every rate."""

    rates: tuple[Rate, ...] = ()
    """Learning rates, each above 0."""
    rates_by_model: dict[str, tuple[Rate, ...]] = Field(default_factory=dict)
    """Other rates for some models, by their shown name."""
    lr: Literal["selected"] | None = None
    """`selected`: for every model and data set the rate that `lr_search` selected, in place of `rates`."""
    lr_search: str | None = Field(None, min_length=1)
    """Directory of the search's run, with `lr: selected`."""
    methods: tuple[MethodConfig, ...] = ()
    """Several ways of changing weights on the same CoTs, each with its rates; in place of `rates` and
    `recipe.method`."""

    def rates_of(self, model: ModelConfig) -> tuple[float, ...]:
        """The rates of one model, each once, in the order given."""
        return tuple(dict.fromkeys(self.rates_by_model.get(model.shown_name, self.rates)))

    def by_method(self) -> tuple[FurSweepConfig, ...]:
        """One configuration per method, in the simple form; this one alone where it has the simple form."""
        return tuple(
            self.model_copy(
                update={
                    "recipe": self.recipe.model_copy(update={"method": one.method}),
                    "rates": one.rates,
                    "rates_by_model": one.rates_by_model,
                    "methods": (),
                }
            )
            for one in self.methods
        ) or (self,)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.lr is None) != (self.lr_search is None):
            raise ValueError("`lr: selected` and `lr_search: <directory of a search>` belong together; give both")
        if self.lr is not None and (self.rates or self.rates_by_model or self.methods):
            raise ValueError("`lr: selected` takes the place of `rates`, `rates_by_model` and `methods`; give one")
        if not self.rates and not self.methods and self.lr is None:
            raise ValueError("rates: is missing; give learning rates, or `methods` with rates of their own")
        if self.methods and (self.rates or self.rates_by_model):
            raise ValueError("`rates` and `methods` exclude one another; move the rates below their method")
        # A resolved configuration that is read again names the default.
        if self.methods and self.recipe.method != FullFF2Config():
            raise ValueError("`recipe.method` and `methods` exclude one another; name the method in `methods` only")
        twice = [name for name, number in Counter(one.name for one in self.methods).items() if number > 1]
        if twice:
            raise ValueError(f"methods: {twice[0]} is given twice; rows could not be told apart, use two runs")
        return self

    @model_validator(mode="after")
    def _rates_have_models(self) -> Self:
        for rates_by_model in (self.rates_by_model, *(one.rates_by_model for one in self.methods)):
            self.must_be_models("rates_by_model", rates_by_model)
        return self
