"""Configuration of a FUR sweep over models, data sets and learning rates, and the part of it that other jobs share."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from fairwitness.chains.config import ChainsConfig, EligibleRule
from fairwitness.config import Config
from fairwitness.lm.config import ModelConfig
from fairwitness.text.numbers import method_name

KlDirection = Literal["policy_from_reference", "reference_from_policy"]
ObjectiveName = Literal["npo_kl", "npo_grad_diff", "gradient_ascent", "simnpo"]


class ObjectiveSettings(NamedTuple):
    """What can be set of an objective.

    Attributes:
        forget: Its losses on what is forgotten, each with its usual coefficient.
        retain: The same of its losses on the retain set.
        parameters: Its own keys of a recipe, each with its usual value.
    """

    forget: Mapping[str, float]
    retain: Mapping[str, float]
    parameters: Mapping[str, Any]


OBJECTIVE_SETTINGS: Mapping[str, ObjectiveSettings] = {
    "npo_kl": ObjectiveSettings({"npo": 1.0}, {"kl": 1.0}, {"beta": 0.1, "kl_direction": "policy_from_reference"}),
    "npo_grad_diff": ObjectiveSettings({"npo": 1.0}, {"nll": 1.0}, {"beta": 0.1}),
    "gradient_ascent": ObjectiveSettings({"ascent": 1.0}, {"nll": 0.0}, {}),
    "simnpo": ObjectiveSettings({"simnpo": 1.0}, {"nll": 1.0}, {"beta": 2.5, "gamma": 0.0}),
}
"""Settings by the name of the objective; the losses themselves are in `fur/objectives/`."""

_PARAMETERS = tuple(dict.fromkeys(name for one in OBJECTIVE_SETTINGS.values() for name in one.parameters))
_UNITS = {"per_step": "cot_step", "per_word": "word"}

_COMMON: Mapping[str, Any] = {
    "objective": "npo_kl",
    "beta": 0.1,
    "coefficients": {"npo": 1.0, "kl": 1.0},
    "num_iterations": 5,
    "schedule": "linear",
    "weight_decay": 0.01,
    "num_retain": 4,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": {
        **_COMMON,
        "forget_unit": "word",
        "eligible": "content_words",
        "retain": "content",
        "kl_direction": "policy_from_reference",
        "method": {"kind": "ff2", "precision": "float32_master"},
    },
    "reference": {
        **_COMMON,
        "forget_unit": "cot_step",
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
            as a whole: a `method` replaces the preset's. Beside another objective than the preset's, the parameters and
            coefficients of the preset's do not count. Anything else is returned as it is.

    Raises:
        ValueError: There is no preset of that name; the nearest one is named.
    """
    if isinstance(given, str):
        return dict(_values(given))
    if isinstance(given, Mapping) and "preset" in given:
        own = {key: value for key, value in given.items() if key != "preset"}
        values = _values(given["preset"])
        if own.get("objective", "npo_kl") != values.get("objective", "npo_kl"):
            values = {key: value for key, value in values.items() if key not in (*_PARAMETERS, "coefficients")}
        return {**values, **own}
    return given


def complete_objective(given: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with the usual values of what its objective can be told and is not.

    Raises:
        ValueError: A parameter or coefficient is given that the objective does not have, or a key is spelled as
            in earlier versions.
    """
    name = given.get("objective", "npo_kl")
    if not isinstance(name, str):
        return dict(given)
    if name in _UNITS:
        names = ", ".join(OBJECTIVE_SETTINGS)
        raise ValueError(
            f"objective: {name} is written forget_unit: {_UNITS[name]}, what one forgotten sequence is; "
            f"objective names the losses ({names})"
        )
    for loss in ("npo", "kl"):
        if f"{loss}_coefficient" in given:
            raise ValueError(f"{loss}_coefficient: coefficients have one key; write coefficients: {{{loss}: …}}")
    if name not in OBJECTIVE_SETTINGS:
        return dict(given)
    forget, retain, parameters = OBJECTIVE_SETTINGS[name]
    for key in _PARAMETERS:
        if key not in parameters and given.get(key) is not None:
            others = f"only {' and '.join(parameters)}" if parameters else "none"
            raise ValueError(f"{key}: is no parameter of {name}, which has {others}; leave it out")
    usual = {key: value for key, value in parameters.items() if given.get(key) is None}
    weights, coefficients = {**forget, **retain}, given.get("coefficients") or {}
    if isinstance(coefficients, Mapping):
        for loss in coefficients:
            if loss not in weights:
                raise ValueError(f"coefficients: {name} has no loss {loss!r}, only {' and '.join(weights)}")
        usual["coefficients"] = {**weights, **coefficients}
    return {**given, **usual}


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

    objective: ObjectiveName = "npo_kl"
    """Which losses are minimised. `npo_kl`: negative preference optimisation of what is forgotten and a KL divergence
    on the retain set (losses `npo` and `kl`); `npo_grad_diff`: the former and the negative log-likelihood of the retain
    set (`npo`, `nll`); `gradient_ascent`: the log-likelihood of what is forgotten (`ascent`, and `nll` if it has a
    coefficient); `simnpo`: negative preference optimisation per token, without a reference (`simnpo`, `nll`)."""
    forget_unit: Literal["cot_step", "word"] = "cot_step"
    """What one forgotten sequence is. `cot_step`: all content tokens of the cot_step, by their summed log-probability;
    `word`: the tokens of one content word; the loss is the mean over words."""
    eligible: EligibleRule = "content_words"
    """Which cot_steps are unlearned or retained. `content_words`: those of at least two content words;
    `content_tokens`: those of more than two tokens of content words."""
    retain: Literal["content", "reference"] = "content"
    """`content`: the content tokens of `num_retain` cot_steps; `reference`: the first eligible cot_step of one problem,
    for a KL divergence at all positions, prompt included."""
    num_retain: int = Field(4, ge=1, le=64)
    """How many other problems give one cot_step each to the retain set."""
    kl_direction: KlDirection | None = None
    """Of `npo_kl`: `policy_from_reference`, D(π_θ ‖ π_ref), is the usual one."""
    beta: float | None = Field(None, gt=0)
    """Inverse temperature of `npo_kl` and `npo_grad_diff` (usually 0.1) and of `simnpo` (2.5)."""
    gamma: float | None = Field(None, ge=0)
    """Margin of `simnpo` (usually 0)."""
    coefficients: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Weight of each loss by its name; usually 1, and 0 for `nll` of `gradient_ascent`."""
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
        given = expand_preset(given)
        return complete_objective(given) if isinstance(given, Mapping) else given

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the objective."""
        return {name: getattr(self, name) for name in OBJECTIVE_SETTINGS[self.objective].parameters}


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
