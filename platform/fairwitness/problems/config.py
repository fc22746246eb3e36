"""What a user says about a data set: which one, where it is, and which field means what."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fairwitness.config import Config
from fairwitness.problems.problem import MAX_CHOICES

GoldKind = Literal["auto", "label", "letter", "text", "bool", "index0", "index1"]
LOCAL = "local"
HUB = "hub"


def _known_encoding(value: str) -> str:
    try:
        codecs.lookup(value)
    except LookupError as error:
        raise ValueError(f"encoding {value!r} is unknown; use for example utf-8 or cp1252") from error
    return value


Encoding = Annotated[str, AfterValidator(_known_encoding)]
"""Name of an encoding that Python knows."""


class FieldMap(Config):
    """Which field of a record holds what. A field inside another is named with a dot: `question.stem`."""

    id: str | None = None
    """Field with the name of the problem; null names it by a hash of question and choices."""

    question: str = "question"
    """Field with the question."""

    choices: str | tuple[str, ...] | None = "choices"
    """Field with all choices (a list; a list of {label, text}; {label: [...], text: [...]}; {label: text};
    {text: 0 or 1}; {choices: [...], labels: [0 or 1, ...]}; or any of these as text), or the list of fields that hold
    one choice each; null with `fixed_choices`."""

    fixed_choices: tuple[str, ...] = Field(default=(), max_length=MAX_CHOICES)
    """The choices of every problem, where the records do not name them, for example [Yes, No]."""

    gold: str | None = "answer"
    """Field with the correct choice; null when it is not known or when the choices are marked 0 or 1. An empty value
    means not known."""

    gold_kind: GoldKind = "auto"
    """How the correct choice is written: `label` (a label that the choices carry), `letter` (A, b, (C)), `text` (the
    choice's text), `bool` (true is the choice Yes or True), `index0` (0 is the first), `index1` (1 is the first), or
    `auto` (what fits most records; an error when two readings fit equally and differ)."""

    metadata: tuple[str, ...] = ()
    """Further fields to keep with the problem; never used by a measurement."""

    @model_validator(mode="after")
    def _one_source_of_choices(self) -> Self:
        if bool(self.fixed_choices) == bool(self.choices):
            raise ValueError("give either `choices` or `fixed_choices` (and set the other to null or [])")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """All fields that the records must have."""
        choices = (self.choices,) if isinstance(self.choices, str) else self.choices or ()
        named = (self.id, self.question, *choices, self.gold, *self.metadata)
        return tuple(name for name in named if name)


class DataConfig(Config):
    """One data set and how many of its problems to use."""

    data_set: str = Field(min_length=1)
    """A ready definition (arc_challenge, openbookqa, strategyqa, truthfulqa, bbh_sports, mmlu), `local` or `hub`."""

    name: str | None = None
    """Name in the results; null takes the definition's, else the file's, else the hub id's."""

    path: str | None = None
    """Local file, folder or pattern (JSONL, JSON, CSV, TSV, Parquet); with a ready definition, its original file or one
    in the hub's shape."""

    hub_id: str | None = None
    """Hub id for `hub`; with a ready definition it replaces the definition's."""

    hub_config: str | None = None
    """Configuration (subset) on the hub; null takes the definition's."""

    split: str | None = None
    """Split on the hub; null takes the definition's, else `test`. For files it is only noted."""

    revision: str | None = None
    """Commit or tag on the hub; null takes the newest."""

    fields: FieldMap | None = None
    """Field mapping; null takes the definition's, else question, choices and answer."""

    subjects: tuple[str, ...] = ()
    """MMLU only: subjects to keep, by their file names, for example [global_facts]; empty keeps all."""

    shuffle_choices: bool | None = None
    """Whether to shuffle the choices by seed and problem id; null takes the definition's (truthfulqa: yes), else no."""

    csv_header: bool | None = None
    """Whether the first line of a CSV file names the columns; without one they are named 0, 1, 2, … Null takes the
    definition's (mmlu: no), else yes."""

    encoding: Encoding = "utf-8"
    """Encoding of text files. Records that do not decode are refused; set for example cp1252 to read them."""

    num_problems: int | None = Field(default=None, ge=1)
    """How many problems to measure, drawn by seed and problem id; null takes all that are not held out."""

    num_held_out: int = Field(default=20, ge=1)
    """How many further problems are held out for specificity (FUR uses 20)."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.data_set == LOCAL and not self.path:
            raise ValueError("data_set `local` needs `path`")
        if self.data_set == HUB and not self.hub_id:
            raise ValueError("data_set `hub` needs `hub_id`")
        if self.path and (self.hub_id or self.revision or self.hub_config):
            raise ValueError("`path` and the hub's keys exclude one another; keep one of them")
        if self.subjects and self.data_set != "mmlu":
            raise ValueError("`subjects` is for data_set `mmlu` only")
        return self
