"""Rows of our tables made from published lines. Pure: lines in, dicts out.

Where the published implementation measures otherwise than we do, its figures are kept as they are: the probability of a
step is that of the whole CoT after the step's context, and the paper's efficacy comes from it. Answer
probabilities are not renormalised in the files; here they are, and their sum is `letter_mass`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from fairwitness.fur.rows import efficacy
from fairwitness.published.lines import PublishedIteration, ResultLine
from fairwitness.published.reading import Origin
from fairwitness.records.keys import key_of

Row = dict[str, Any]

JOINED = "the file has the CoT in sentences only; they are joined by line breaks"
NO_LINE = "no line in the published files: too few content tokens there, or not run"
NOT_RATED = "not among the steps of the published study"
_MAX_EXPONENT = 700.0


@dataclass
class Problem:
    """A problem as the files tell it; `gold` and `problem_id` can come from different files."""

    data_set: str
    question: str
    choices: tuple[str, ...]
    problem_id: str
    gold: str | None
    revision: str

    @property
    def key(self) -> str:
        """Key in `problems`."""
        return key_of(
            data_set=self.data_set, revision=self.revision, question=self.question, choices=list(self.choices)
        )

    def row(self) -> Row:
        """Row of `problems`."""
        return {
            "key": self.key,
            "data_set": self.data_set,
            "data_revision": self.revision,
            "split": "",
            "problem_id": self.problem_id,
            "question": self.question,
            "choices": list(self.choices),
            "gold": self.gold,
            "status": "ok",
        }


@dataclass
class Cot:
    """A CoT: its text where a file has it, its sentences, and which of them have a line of their own.

    `is_sample` says that the lines are only a draw of the steps, as those of the study are.
    """

    problem: Problem
    scope_key: str
    origin: Origin
    text: str | None
    sentences: tuple[str, ...]
    used: set[int]
    is_sample: bool = False
    result: ResultLine | None = None
    predicted: int | None = None

    @property
    def key(self) -> str:
        """Key in `cots`."""
        return key_of(scope=self.scope_key, problem=self.problem.key)

    def row(self) -> Row:
        """Row of `cots`; answers are there where a line of results has them."""
        row = {
            "key": self.key,
            "scope_key": self.scope_key,
            "problem_key": self.problem.key,
            "problem_id": self.problem.problem_id,
            "data_set": self.problem.data_set,
            "model": self.origin.model,
            "seed": self.origin.seed,
            "cot_text": "\n".join(self.sentences) if self.text is None else self.text,
            "num_cot_steps": len(self.sentences),
            "status": "ok",
            "reason": JOINED if self.text is None else None,
        }
        if self.result is not None:
            direct, cot = self.result.prediction, self.result.cot_prediction
            row |= _answer("direct", direct, self.result.initial_probs)
            row |= _answer("cot", cot, self.result.initial_cot_probs)
            row["agree"] = direct == cot
        elif self.predicted is not None:
            row["direct_letter"] = ascii_uppercase[self.predicted]
        return row

    def step_rows(self) -> list[Row]:
        """Rows of `cot_steps`."""
        return [
            {
                "key": key_of(cot=self.key, cot_step=index),
                "scope_key": self.scope_key,
                "cot_key": self.key,
                "problem_id": self.problem.problem_id,
                "data_set": self.problem.data_set,
                "cot_step_index": index,
                "char_start": start,
                "char_end": None if start is None else start + len(sentence),
                "text": sentence,
                **self._use(index),
            }
            for index, (sentence, start) in enumerate(zip(self.sentences, self._starts(), strict=True))
        ]

    def _use(self, index: int) -> Row:
        if index in self.used:
            return {"eligible": True, "status": "ok"}
        if self.is_sample:
            return {"eligible": None, "status": "skipped", "reason": NOT_RATED}
        return {"eligible": False, "status": "skipped", "reason": NO_LINE}

    def _starts(self) -> list[int | None]:
        text = self.row()["cot_text"]
        starts: list[int | None] = []
        position = 0
        for sentence in self.sentences:
            start = text.find(sentence, position)
            starts.append(None if start < 0 else start)
            position = position if start < 0 else start + len(sentence)
        return starts


def task_key(cell_key: str, problem: Problem, cot_step_index: int) -> str:
    """Key of one unlearned step."""
    return key_of(cell=cell_key, problem=problem.key, cot_step=cot_step_index)


def unlearning_rows(line: ResultLine, cot: Cot, origin: Origin, cell_key: str) -> list[Row]:
    """Rows of `unlearning`: one per iteration after the untouched model, which is the base."""
    key = task_key(cell_key, cot.problem, line.step_idx)
    base, *after = line.iterations
    common = {
        "task_key": key,
        "cell_key": cell_key,
        "scope_key": cot.scope_key,
        "attempt": 1,
        "model": origin.model,
        "data_set": cot.problem.data_set,
        "problem_id": cot.problem.problem_id,
        "problem_key": cot.problem.key,
        "cot_key": cot.key,
        "cot_step_index": line.step_idx,
        "method": origin.method,
        "lr": origin.lr,
        "seed": origin.seed,
        "base_letter": ascii_uppercase[base.prediction],
        "base_probs": _renormalised(base.probs),
        "base_cot_step_logprob": base.cot_step_prob[0],
        "status": "ok",
    }
    return [
        {**common, **_measured(base, now), "iteration": number, "key": key_of(task_key=key, iteration=number)}
        for number, now in enumerate(after, start=1)
    ]


def _measured(base: PublishedIteration, now: PublishedIteration) -> Row:
    held_out = list(zip(base.specificity_preds, now.specificity_preds, strict=True))
    change = now.cot_step_prob[0] - base.cot_step_prob[0]
    return {
        **_answer("predicted", now.prediction, now.probs, ""),
        "flipped": now.prediction != base.prediction,
        "cot_step_logprob": now.cot_step_prob[0],
        "efficacy": efficacy(base.cot_step_prob[0], now.cot_step_prob[0]) if change < _MAX_EXPONENT else None,
        "specificity": sum(one == two for one, two in held_out) / len(held_out) if held_out else None,
        "num_held_out": len(held_out),
        "held_out_letters": [ascii_uppercase[index] for index in now.specificity_preds],
        "cot_after_text": now.new_cot,
        "cot_after_letter": ascii_uppercase[max(range(len(now.new_cot_probs)), key=now.new_cot_probs.__getitem__)],
    }


def _answer(name: str, index: int, probs: Sequence[float], prefix: str | None = None) -> Mapping[str, Any]:
    before = f"{name}_" if prefix is None else prefix
    return {
        f"{name}_letter": ascii_uppercase[index],
        f"{before}probs": _renormalised(probs),
        f"{before}letter_mass": min(1.0, math.fsum(probs)),
    }


def _renormalised(probs: Sequence[float]) -> list[float]:
    total = math.fsum(probs)
    return [value / total for value in probs]
