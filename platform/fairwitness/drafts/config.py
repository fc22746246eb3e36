"""Configuration of a measurement of thinking drafts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fairwitness.config import Config
from fairwitness.drafts.interventions import INSERTION_TYPES, INTERVENTIONS, InsertionType
from fairwitness.experiment.config import RunConfig
from fairwitness.judges.config import JudgeConfig, RulesConfig
from fairwitness.lm.config import SamplingConfig
from fairwitness.problems.config import DataConfig, Encoding
from fairwitness.text.think_tags import Tags
from fairwitness_schemas.drafts import JOB as JOB
from fairwitness_schemas.drafts import OWN

ReadBy = Literal["rules", "judge"]
ConclusionKind = Literal["direct", "plausible"]
Position = Literal["initial", "middle", "end"]
POSITIONS: tuple[Position, ...] = ("initial", "middle", "end")


class TagsConfig(Config):
    """The tags around a draft, as the model writes them."""

    open: str = Field("<think>", min_length=1)
    """Opening tag."""
    close: str = Field("</think>", min_length=1)
    """Closing tag."""

    @property
    def pair(self) -> Tags:
        """Both."""
        return Tags(self.open, self.close)

    @model_validator(mode="after")
    def _different(self) -> Self:
        if self.open == self.close:
            raise ValueError("open and close are the same; a draft's end could not be told from its beginning")
        return self


class DraftFileConfig(Config):
    """Drafts of another model, given as a file: JSON lines, one draft a line."""

    name: str = Field(min_length=1)
    """Name of the model that wrote them, for tables."""
    path: str = Field(min_length=1)
    """The file."""
    problem_field: str = "problem_id"
    """Field with the problem's id."""
    draft_field: str = "draft"
    """Field with the draft; tags around it are taken off, and what stands after the closing one."""
    tags: TagsConfig | None = None
    """The tags around these drafts, where they differ from those of the models."""
    encoding: Encoding = "utf-8"
    """Encoding of the file. Lines that do not decode are refused."""
    where: dict[str, str] = Field(default_factory=dict)
    """Only lines whose fields have these values, for a file with the drafts of several models or data sets."""


class DraftLimits(Config):
    """Most tokens of each part."""

    draft: int = Field(8192, ge=1)
    """Of a draft that the model writes."""
    continuation: int = Field(8192, ge=1)
    """Of a draft's continuation after an inserted step."""
    answer: int = Field(1024, ge=1)
    """Of the answer after a draft. Immediate answers have four."""


class DraftEngineConfig(Config):
    """How the engine uses its device; changes no result."""

    backend: Literal["transformers", "vllm"] = "transformers"
    """`vllm` needs that package in an environment of its own, see the guide."""
    max_cache_tokens: int = Field(65_536, ge=1)
    """Tokens, padding included, that the rows of one batch may have at their end."""
    drafts_per_item: int = Field(8, ge=1, le=1024)
    """Drafts that a worker is handed at once."""


class DraftFaithfulnessConfig(RunConfig):
    """Intra-draft and draft-to-answer faithfulness of every model on every data set and source of drafts."""

    data_sets: tuple[DataConfig, ...] = Field(min_length=1)
    """The data sets; no problem is held out."""
    tags: TagsConfig | None = TagsConfig()
    """Tags of the models' drafts; null for models that reason after a cue, without tags."""
    own_drafts: bool = True
    """Whether the models' own drafts are measured."""
    draft_files: tuple[DraftFileConfig, ...] = ()
    """Drafts of other models."""
    interventions: tuple[str, ...] = ("shift_mapping", "corrupt_option")
    """Counterfactual steps by name; the default ones are the paper's."""
    insertion_types: tuple[InsertionType, ...] = INSERTION_TYPES
    """How a step is written: `continue` or `backtrack`."""
    positions: tuple[Position, ...] = POSITIONS
    """Where in the draft."""
    conclusions: tuple[ConclusionKind, ...] = ("direct",)
    """How the end of the draft is changed; `plausible` needs `writer`."""
    decomposer: ReadBy = "rules"
    """Who cuts the draft into labelled steps."""
    corruptor: Literal["rules", "writer"] = "rules"
    """Who makes a choice wrong."""
    conclusion_order: tuple[ReadBy, ...] = Field(("rules",), min_length=1)
    """Who reads a conclusion: the next one is asked where one finds none."""
    behaviour_by: ReadBy = "rules"
    """Who tells correction from following."""
    judge: JudgeConfig = RulesConfig()
    """The judge that `decomposer`, `conclusion_order` and `behaviour_by` may name. With a judge its verdict on the
    behaviour is recorded beside that of the rules, whoever decides."""
    writer: JudgeConfig = RulesConfig()
    """The model that writes corrupted choices and plausible conclusions."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are chosen; greedy by default."""
    limits: DraftLimits = DraftLimits()
    """Most tokens of each part."""
    engine: DraftEngineConfig = DraftEngineConfig()
    """How the engine uses its device."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all sources of drafts."""
        return (*([OWN] if self.own_drafts else []), *(file.name for file in self.draft_files))

    @property
    def corrupts(self) -> bool:
        """Whether some intervention needs a wrong version of the concluded choice."""
        return any(INTERVENTIONS[name].needs_corruption for name in self.interventions)

    @property
    def has_judge(self) -> bool:
        """Whether a model judges."""
        return not isinstance(self.judge, RulesConfig)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.sources:
            raise ValueError("own_drafts is off and there are no draft_files; give one of them")
        files = [file.name for file in self.draft_files]
        if len({OWN, *files}) < len(files) + 1:
            raise ValueError(f"draft_files: the names {', '.join(files)} must differ, and none may be {OWN!r}")
        for name in self.interventions:
            if name not in INTERVENTIONS:
                raise ValueError(f"interventions: {name!r} is not one of {', '.join(INTERVENTIONS)}")
        if not self.interventions and not self.conclusions:
            raise ValueError("interventions and conclusions are both empty; there is nothing to measure")
        wants_judge = "judge" in (self.decomposer, self.behaviour_by, *self.conclusion_order)
        if wants_judge and not self.has_judge:
            raise ValueError("a judge is to decide, but `judge` is rules; set judge.kind: openai or local")
        if isinstance(self.writer, RulesConfig) and ("plausible" in self.conclusions or self.corruptor == "writer"):
            raise ValueError("plausible conclusions and corruptor: writer need `writer` with kind: openai or local")
        return self
