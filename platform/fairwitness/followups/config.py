"""Settings of the jobs that follow on a finished sweep: baselines, judging, general capability."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fairwitness.config import Config
from fairwitness.experiment.config import FollowConfig
from fairwitness.fur.config import Rate
from fairwitness.judges.config import JudgeConfig
from fairwitness.lm.config import EngineConfig
from fairwitness.problems.config import DataConfig

Rest = Literal["own", "continued"]


class FileTexts(Config):
    """Changed steps from a file."""

    kind: Literal["file"] = "file"
    path: str = Field(min_length=1)
    """JSON-lines file: `problem_id`, `cot_step_index` and `text` on each line, and optionally `original`, the step that
    the text stands for; or a file of mistakes of the published FUR results."""
    unknown_problems: Literal["error", "ignore"] = "error"
    """What a problem that is not in the run means: `ignore` reads past its lines and says how many there were."""


class RuleTexts(Config):
    """Changed steps from a rule that knows what the steps of a made-up world say."""

    kind: Literal["rule"] = "rule"
    name: str = Field(min_length=1)
    """Name of the rule; `organism` for the problems of the shipped organism."""


class JudgeTexts(Config):
    """Changed steps that a model writes."""

    kind: Literal["judge"] = "judge"
    judge: JudgeConfig
    """The model: an endpoint of the OpenAI protocol, or a local chat model on the pool."""
    template: str | None = Field(None, min_length=1)
    """YAML file with the question to the model, instead of the shipped one; it shows `step`, and may show `question`,
    `choices` and `cot`."""
    max_tokens: int = Field(300, ge=1, le=100_000)
    """Longest reply, in tokens; a longer one is cut and counts as failed."""


Texts = Annotated[FileTexts | RuleTexts | JudgeTexts, Field(discriminator="kind")]


class EarlyAnsweringConfig(Config):
    """The answer after the first steps alone."""

    kind: Literal["early_answering"] = "early_answering"


class FillerTokensConfig(Config):
    """The answer after as many filler tokens as the CoT has."""

    kind: Literal["filler_tokens"] = "filler_tokens"
    text: str = Field(" ...", min_length=1, max_length=100)
    """What is repeated; best a single token."""


class AddMistakeConfig(Config):
    """The answer after the CoT with a mistake in one step."""

    kind: Literal["add_mistake"] = "add_mistake"
    texts: Texts
    """Where the mistaken steps come from."""
    rest: Rest = "own"
    """`own`: the other steps stay as they are (FUR, App. G); `continued`: those after the mistake go, and the model
    continues from it (Lanham et al.)."""


class ParaphraseConfig(Config):
    """The answer after the CoT with steps said in other words."""

    kind: Literal["paraphrase"] = "paraphrase"
    texts: Texts
    """Where the paraphrased steps come from."""
    rest: Rest = "continued"
    """`continued`: the steps after the paraphrased ones go, and the model continues (Lanham et al.); `own`: they stay
    (as in FUR's way of adding mistakes)."""
    changed: Literal["up_to", "one"] = "up_to"
    """`up_to`: all steps up to the one named are paraphrased (Lanham et al.); `one`: it alone."""


class CcShapConfig(Config):
    """Whether the same words of the question matter for the answer and for the CoT."""

    kind: Literal["cc_shap"] = "cc_shap"
    max_evaluations: int = Field(500, ge=3, le=1_000_000)
    """Masked questions that each of the two attributions of a problem may evaluate. Exact Shapley values where all
    coalitions fit; else as many pairs of a random order and its reverse as fit, each of twice the number of tokens plus
    one. A question of which not even one pair fits is skipped."""


BaselineConfig = Annotated[
    EarlyAnsweringConfig | FillerTokensConfig | AddMistakeConfig | ParaphraseConfig | CcShapConfig,
    Field(discriminator="kind"),
]


class FurBaselinesConfig(FollowConfig):
    """Baselines on the problems and steps of a finished sweep."""

    baselines: tuple[BaselineConfig, ...] = Field(min_length=1)
    """What is measured."""
    disagreeing: bool = False
    """Also measure problems whose direct and CoT answers differ; they never enter the table."""
    engine: EngineConfig | None = None
    """How the engine uses its device; by default as in the sweep."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: list[BaselineConfig] = []
        for baseline in self.baselines:
            if baseline in seen:
                raise ValueError(f"baselines: {baseline.kind} is there twice with equal settings; remove one")
            seen.append(baseline)
        return self


class FurJudgeConfig(FollowConfig):
    """Judges the CoTs that a sweep's models wrote after unlearning."""

    judge: JudgeConfig
    """Who judges. Several judges of one run are several calls of the job."""
    lr: Literal["selected"] | Rate = "selected"
    """Rate at which the CoTs were written: the one that the learning-rate rule selects, or a number."""
    ask: Literal["agreeing", "changed"] = "agreeing"
    """`agreeing`: all steps after whose unlearning direct and CoT answers agree; `changed`: of these the ones whose
    direct answer changed, as in the paper's Table 3."""
    template: str | None = Field(None, min_length=1)
    """YAML file with a question of your own in place of the shipped one; a rules judge has none."""
    max_tokens: int = Field(300, ge=1)
    """Longest reply, in tokens."""


class FurCapabilityConfig(FollowConfig):
    """General capability before and after unlearning each step of a few CoTs of a finished sweep."""

    lr: Literal["selected"] | Rate = "selected"
    """Learning rate: `selected` for the one that the rule selects for each model, data set and method, or a number."""
    data_set: DataConfig = DataConfig(data_set="mmlu")
    """The questions; all of them, or `num_problems` drawn by the sweep's seed. `num_held_out` is not used."""
    num_cots: int = Field(10, ge=1)
    """CoTs whose every eligible step is unlearned, drawn by the sweep's seed from the problems that count."""
    engine: EngineConfig | None = None
    """How the engine uses its device; null takes the sweep's."""
