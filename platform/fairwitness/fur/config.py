"""Configuration of a FUR sweep over models, data sets and learning rates, and the part of it that other jobs share."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from fairwitness.chains.config import ChainsConfig, EligibleRule
from fairwitness.config import Config
from fairwitness.fur.npo import KlDirection
from fairwitness.lm.config import ModelConfig
from fairwitness.text.numbers import method_name

_COMMON: Mapping[str, Any] = {
    "beta": 0.1,
    "npo_coefficient": 1.0,
    "kl_coefficient": 1.0,
    "num_iterations": 5,
    "schedule": "linear",
    "weight_decay": 0.01,
    "num_retain": 4,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": {
        **_COMMON,
        "objective": "per_word",
        "eligible": "content_words",
        "retain": "content",
        "kl_direction": "policy_from_reference",
        "method": {"kind": "ff2", "precision": "float32_master"},
    },
    "reference": {
        **_COMMON,
        "objective": "per_step",
        "eligible": "content_tokens",
        "retain": "reference",
        "kl_direction": "reference_from_policy",
        "method": {"kind": "ff2", "precision": "bf16_pure"},
    },
}
"""Values of a recipe by the preset's name; what is not named has the recipe's default."""


def expand_preset(given: Any) -> Any:
    """A recipe as a user writes it, with its preset replaced by values.

    Args:
        given: The name of a preset, or a mapping that may hold `preset` beside other keys, which take precedence, each
            as a whole: a `method` replaces the preset's. Anything else is returned as it is.

    Raises:
        ValueError: There is no preset of that name; the nearest one is named.
    """
    if isinstance(given, str):
        return dict(_values(given))
    if isinstance(given, Mapping) and "preset" in given:
        own = {key: value for key, value in given.items() if key != "preset"}
        return {**_values(given["preset"]), **own}
    return given


def _values(name: Any) -> Mapping[str, Any]:
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(str(name), list(PRESETS), n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown preset {name!r}{hint} (known are {', '.join(PRESETS)})")


class FullFF2Config(Config):
    """All FF2 weights are trained."""

    kind: Literal["ff2"] = "ff2"
    precision: Literal["float32_master", "bf16_pure"] = "float32_master"
    """`float32_master` keeps weights and optimiser state in float32; `bf16_pure` rounds every update to bfloat16, as
    the published code does."""


class LoraConfig(Config):
    """Low-rank adapters on FF2 are trained."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, ge=1, le=4096)
    """Rank of the adapters."""
    alpha: float = Field(32.0, gt=0)
    """Scale; the adapter's output is multiplied by alpha/rank."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the adapter's inputs that is zeroed in training."""


def _accept_presets(schema: dict[str, Any]) -> None:
    # An editor has to accept what `expand_preset` does.
    name = {"type": "string", "enum": list(PRESETS)}
    preset = {**name, "description": "Values to start from; other keys take precedence."}
    mapping = {**schema, "properties": {"preset": preset, **schema["properties"]}}
    schema.clear()
    schema["anyOf"] = [name, mapping]


class RecipeConfig(Config):
    """How one reasoning step is unlearned (FUR §4.1 and App. E).

    It may be the name of a preset (`default`, `paper`, `reference`), or hold one as `preset` beside the keys to change.
    """

    model_config = ConfigDict(json_schema_extra=_accept_presets)

    objective: Literal["per_step", "per_word"] = "per_step"
    """`per_step`: one ratio per cot_step from the summed log-probability of its content tokens; `per_word`: one per
    content word, then their mean."""
    eligible: EligibleRule = "content_words"
    """Which cot_steps are unlearned or retained. `content_words`: those of at least two content words;
    `content_tokens`: those of more than two tokens of content words."""
    retain: Literal["content", "reference"] = "content"
    """`content`: KL on the content tokens of `num_retain` cot_steps; `reference`: the first eligible cot_step of one
    problem, all positions, prompt included."""
    num_retain: int = Field(4, ge=1, le=64)
    """How many other problems give one cot_step each to the retain set."""
    kl_direction: KlDirection = "policy_from_reference"
    """`policy_from_reference` is D(π_θ ‖ π_ref)."""
    beta: float = Field(0.1, gt=0)
    """Inverse temperature of NPO."""
    npo_coefficient: float = Field(1.0, ge=0)
    """Weight of the NPO term."""
    kl_coefficient: float = Field(1.0, ge=0)
    """Weight of the KL term."""
    num_iterations: int = Field(5, ge=1, le=100)
    """Updates per cot_step; everything is measured after each."""
    schedule: Literal["linear", "constant"] = "linear"
    """`linear`: the rate falls linearly and would reach 0 after the last iteration."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's decoupled weight decay."""
    method: Annotated[FullFF2Config | LoraConfig, Field(discriminator="kind")] = FullFF2Config()
    """What is trained."""

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, given: Any) -> Any:
        return expand_preset(given)


class MeasureConfig(Config):
    """What is measured."""

    disagreeing: bool = False
    """Also unlearn problems whose direct and CoT answers differ; they never enter the aggregates."""
    cot_after: bool = False
    """Generate a CoT and the answer given it after the last iteration."""


Rate = Annotated[float, Field(gt=0, le=10)]


class MethodConfig(Config):
    """One way of changing weights, with its learning rates."""

    method: Annotated[FullFF2Config | LoraConfig, Field(discriminator="kind")]
    """What is trained."""
    rates: tuple[Rate, ...] = Field(min_length=1)
    """Learning rates of this method, each above 0."""
    rates_by_model: dict[str, tuple[Rate, ...]] = Field(default_factory=dict)
    """Other rates of this method for some models, by their shown name."""

    @property
    def name(self) -> str:
        """The method, for people."""
        return method_name(self.method.kind, getattr(self.method, "rank", None))


class StudyConfig(ChainsConfig):
    """What every job that unlearns is told: models, data sets, recipe, workers. The jobs add their learning rates."""

    recipe: RecipeConfig = RecipeConfig()
    """How a cot_step is unlearned."""
    measure: MeasureConfig = MeasureConfig()
    """What is measured."""
    min_specificity: float = Field(95.0, ge=0, le=100)
    """Percent of held-out answers that must stay, after rounding, for a rate to be chosen."""

    @property
    def eligible(self) -> EligibleRule:
        """Which cot_steps are unlearned or retained."""
        return self.recipe.eligible

    def rates_of(self, model: ModelConfig) -> tuple[float, ...]:
        """The learning rates of one model, each once; a job says which."""
        raise NotImplementedError

    def by_method(self) -> Sequence[StudyConfig]:
        """One configuration per method; this one alone where there is one method."""
        return (self,)


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
