"""The lines of published files: results of unlearning, mistakes, judgements, rated steps. Checked field by field.

Only fields that the published implementation writes are read; further ones are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fairwitness.analysis.ratings import parse_rating
from fairwitness.judges.published import published_verdict
from fairwitness.problems.choices import parse_choices
from fairwitness.problems.records import FieldError

Share = Annotated[float, Field(ge=0, le=1 + 1e-6)]
_LETTERED = re.compile(r"([A-Z])\):?\s*")
_PROMPT = re.compile(
    r"\nQuestion: (?P<question>.+?)\nAnswer options:\n(?P<options>\[.+?\])\n\nReasoning chain 1:\n", re.S
)
_INSTANCE = re.compile(r"(?P<problem>.+)_(?P<step>\d+)", re.S)


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False, protected_namespaces=())


class _OfProblem(_Line):
    """A line about one step of the CoT to one problem."""

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    options: list[str]
    step_idx: int = Field(ge=0)
    cot_step: str
    segmented_cot: list[str] = Field(min_length=1)

    @property
    def choices(self) -> tuple[str, ...]:
        """Texts of the choices, without their letters."""
        return choice_texts(self.options)

    @field_validator("options")
    @classmethod
    def _lettered(cls, value: list[str]) -> list[str]:
        choice_texts(value)
        return value

    @model_validator(mode="after")
    def _is_its_step(self) -> Self:
        if self.step_idx >= len(self.segmented_cot) or self.segmented_cot[self.step_idx] != self.cot_step:
            raise ValueError(f"cot_step is not step {self.step_idx} of segmented_cot")
        return self


class PublishedIteration(_Line):
    """What was measured after one iteration; 0 is the untouched model."""

    probs: list[Share]
    prediction: int
    specificity_preds: list[int]
    new_cot: str
    new_cot_probs: list[Share]
    cot_step_prob: list[float] = Field(min_length=1, max_length=1)


class ResultLine(_OfProblem):
    """Unlearning of one step: answers before, and after each iteration."""

    correct: str
    initial_cot: str
    initial_probs: list[Share]
    initial_cot_probs: list[Share]
    prediction: int
    cot_prediction: int
    unlearning_results: dict[str, PublishedIteration]

    @property
    def iterations(self) -> list[PublishedIteration]:
        """The measurements in order, the untouched model first."""
        return [self.unlearning_results[str(number)] for number in range(len(self.unlearning_results))]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        number = len(self.options)
        if self.correct not in ascii_uppercase[:number]:
            raise ValueError(f"correct is {self.correct!r}, not one of the {number} letters")
        expected = {str(place) for place in range(len(self.unlearning_results))}
        if len(expected) < 2 or set(self.unlearning_results) != expected:
            raise ValueError("unlearning_results must hold the iterations 0, 1, 2 and so on")
        _check_answer("initial_probs", self.initial_probs, self.prediction, number)
        _check_answer("initial_cot_probs", self.initial_cot_probs, self.cot_prediction, number)
        for place, measured in enumerate(self.iterations):
            _check_answer(f"unlearning_results.{place}.probs", measured.probs, measured.prediction, number)
            if len(measured.new_cot_probs) != number:
                raise ValueError(f"unlearning_results.{place}.new_cot_probs has not {number} numbers")
            if len(measured.specificity_preds) != len(self.iterations[0].specificity_preds):
                raise ValueError(f"unlearning_results.{place}.specificity_preds has another length than at iteration 0")
            if not all(0 <= index < len(ascii_uppercase) for index in measured.specificity_preds):
                raise ValueError(f"unlearning_results.{place}.specificity_preds holds what is no choice")
        return self


class MistakeLine(_OfProblem):
    """A step and the same step with a mistake in it."""

    mistake_cot_step: str
    mistake_model: str


class JudgementLine(_Line):
    """A judge's reply on whether the CoTs before and after unlearning argue for the same answer.

    Which of both comes first in the prompt was drawn at random and is not in the file, so the CoTs are not taken.
    """

    prompt: str
    response: str
    model: str = Field(min_length=1)
    instance_id: str

    @field_validator("instance_id")
    @classmethod
    def _names_a_step(cls, value: str) -> str:
        if not _INSTANCE.fullmatch(value):
            raise ValueError("must be a question, an underscore and the number of a step")
        return value

    @property
    def problem(self) -> str:
        """The question, as the instance names it."""
        return _INSTANCE.fullmatch(self.instance_id)["problem"]  # type: ignore[index]

    @property
    def step_idx(self) -> int:
        """Position of the step, from 0."""
        return int(_INSTANCE.fullmatch(self.instance_id)["step"])  # type: ignore[index]

    @property
    def verdict(self) -> str | None:
        """See `published_verdict`."""
        return published_verdict(self.response)

    @property
    def template(self) -> str:
        """The instructions, without the question."""
        return self.prompt.partition("\nQuestion: ")[0]

    def question_and_choices(self) -> tuple[str, tuple[str, ...]] | None:
        """The problem as the prompt holds it; None when it is written otherwise."""
        found = _PROMPT.search(self.prompt)
        if not found:
            return None
        try:
            return found["question"], choice_texts(list(parse_choices(found["options"], "options").texts))
        except (FieldError, ValueError):
            return None


class StudyLine(_Line):
    """A step of the published study; all cells of a CSV are text."""

    ID: str = Field(min_length=1)
    Question: str = Field(min_length=1)
    options: str
    segmented_cot: str
    correct_answer: int = Field(ge=0, strict=False)
    predicted_answer: int = Field(ge=0, strict=False)
    target_step_idx: int = Field(ge=0, strict=False)
    dp: float = Field(ge=-1, le=1, strict=False)
    dataset: str = Field(min_length=1)
    model: str = Field(min_length=1)
    rating: str | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """Texts of the choices, without their letters."""
        return choice_texts(self.options.split("||"))

    @property
    def steps(self) -> list[str]:
        """The sentences of the CoT."""
        return self.segmented_cot.split("||")

    @field_validator("rating")
    @classmethod
    def _on_the_scale(cls, value: str | None) -> str | None:
        parse_rating(value or "")
        return value

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.target_step_idx >= len(self.steps):
            raise ValueError(f"target_step_idx is {self.target_step_idx}, but the CoT has {len(self.steps)} steps")
        if max(self.correct_answer, self.predicted_answer) >= len(self.choices):
            raise ValueError(f"correct_answer or predicted_answer is beyond the {len(self.choices)} options")
        return self


Line = ResultLine | MistakeLine | JudgementLine | StudyLine


class Shape(NamedTuple):
    """One kind of file: its name for people, the fields that tell it, and the class of its lines."""

    name: str
    marks: tuple[str, ...]
    line: type[ResultLine] | type[MistakeLine] | type[JudgementLine] | type[StudyLine]


SHAPES = (
    Shape("results", ("unlearning_results", "segmented_cot", "step_idx"), ResultLine),
    Shape("mistakes", ("mistake_cot_step", "segmented_cot", "step_idx"), MistakeLine),
    Shape("judgements", ("response", "instance_id", "prompt"), JudgementLine),
    Shape("study", ("dp", "target_step_idx", "segmented_cot"), StudyLine),
)


def parse_line(shape: Shape, values: Any) -> Line:
    """Checks one line.

    Raises:
        FieldError: A field is missing or cannot be used.
    """
    try:
        return shape.line.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FieldError(field, "is missing" if first["type"] == "missing" else first["msg"]) from error


def choice_texts(options: Sequence[str]) -> tuple[str, ...]:
    """Texts of options written as `A): text`.

    Raises:
        ValueError: There are fewer than two, or one does not begin with its letter.
    """
    if not 2 <= len(options) <= len(ascii_uppercase):
        raise ValueError(f"{len(options)} options; 2 to 26 are possible")
    texts = []
    for letter, option in zip(ascii_uppercase, options, strict=False):
        found = _LETTERED.match(option)
        if not found or found[1] != letter or not option[found.end() :].strip():
            raise ValueError(f"option {option!r} is not written as '{letter}): text'")
        texts.append(option[found.end() :].strip())
    return tuple(texts)


def _check_answer(name: str, probs: Sequence[float], prediction: int, number: int) -> None:
    if len(probs) != number:
        raise ValueError(f"{name} has {len(probs)} numbers for {number} options")
    if sum(probs) <= 0:
        raise ValueError(f"{name} gives the letters no probability")
    # Two letters can be equally likely, and either may have been taken.
    if not 0 <= prediction < number or probs[prediction] < max(probs):
        likeliest = list(probs).index(max(probs))
        raise ValueError(f"the prediction beside {name} is {prediction}, but choice {likeliest} is likelier")
