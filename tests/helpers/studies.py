"""Studies and records of base measurements for tests that run no model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairwitness.chains.cots import CotRecord
from fairwitness.chains.steps import cot_steps
from fairwitness.fur.studies import prepare_studies
from fairwitness.fur.study import FurStudy
from fairwitness.lm.scoring import LetterAnswer
from fairwitness.lm.tokens import decode, encode
from fairwitness.problems.problem import Problem
from tests.helpers.sweeps import TWO_STEPS, config_of, problem, settings, write_problems


def make_study(folder: Path, model: Path, *, num_problems: int = 5, num_held_out: int = 4, **changes: Any) -> FurStudy:
    """The one study of a small sweep over `num_problems` problems; its data file is written to the folder."""
    data = write_problems(folder / "animals.jsonl", [problem(n) for n in range(num_problems + num_held_out)])
    counts = {"num_problems": num_problems, "num_held_out": num_held_out}
    plain = settings(folder / "results", model, data, **changes)
    plain["data_sets"] = [{**plain["data_sets"][0], **counts}]
    (study,) = prepare_studies(config_of(plain), {})
    return study


def answer(index: int, num_choices: int = 4) -> LetterAnswer:
    """An answer that is sure of one choice."""
    probs = [0.1] * num_choices
    probs[index] = 1.0 - 0.1 * (num_choices - 1)
    return LetterAnswer(tuple(probs), 0.5, index)


def measured(study: FurStudy) -> Sequence[Problem]:
    """The problems that are measured."""
    return study.data.selection.measured


def record(study: FurStudy, one: Problem, text: str = TWO_STEPS, *, direct: int = 0, given_cot: int = 0) -> CotRecord:
    """What a base model that writes this CoT and gives these answers leads to."""
    ids = tuple(encode(study.encoder.tokenizer, text))
    steps = tuple(cot_steps(partial(decode, study.encoder.tokenizer), ids))
    return CotRecord(
        one,
        tuple(study.encoder.cot(one)),
        ids,
        text,
        "blank_line",
        answer(direct),
        answer(given_cot),
        steps,
        tuple(-1.0 - step.index for step in steps),
    )
