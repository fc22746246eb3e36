"""What the page shows of one problem: choices, the CoT cut into shaded steps, answers before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from fairwitness.analysis.panels import Panel
from fairwitness.problems.problem import Problem
from fairwitness.report.format import decimal, is_missing
from fairwitness.report.truth import step_truth

SHADES = 10
Row = Mapping[Any, Any]
_INVISIBLE = 0.005


@dataclass(frozen=True)
class StepView:
    """One step of a CoT with what its unlearning did at the shown rate.

    Attributes:
        number: Position in the CoT, from 1.
        text: Text of the step.
        is_measured: Whether there are measurements.
        note: Why there are none.
        truth: Ground truth of the step, if the problem carries one.
        ff_soft: Probability taken from the base answer, final iteration.
        ff_soft_mean: The same, mean over iterations.
        ff_soft_max: The same, largest over iterations.
        efficacy: Mean over iterations.
        specificity: Mean over iterations.
        flip: `yes`, `no`, `passing` (flipped, but not at the last iteration) or None when not known.
        letter_after: Answer after the last iteration.
        probs: Answer distribution after the last iteration.
        cot_after: Text of the CoT after unlearning, if one was asked for.
    """

    number: int
    text: str
    is_measured: bool
    note: str
    truth: str | None
    ff_soft: float | None = None
    ff_soft_mean: float | None = None
    ff_soft_max: float | None = None
    efficacy: float | None = None
    specificity: float | None = None
    flip: str | None = None
    letter_after: str | None = None
    probs: tuple[float, ...] = ()
    cot_after: str | None = None

    @property
    def shade(self) -> str:
        """Class of its colour: `t1`..`t10` taken, `g1`..`g10` given, `z` no effect, `n` not measured."""
        if not self.is_measured or self.ff_soft is None:
            return "n"
        if abs(self.ff_soft) < _INVISIBLE:
            return "z"
        return f"{'t' if self.ff_soft > 0 else 'g'}{min(SHADES, ceil(abs(self.ff_soft) * SHADES))}"

    @property
    def mark(self) -> str:
        """The value written beside the step, its sign as an arrow: down for taken from the answer, up for given."""
        if self.ff_soft is None:
            return ""
        if abs(self.ff_soft) < _INVISIBLE:
            return decimal(0)
        return f"{'▼' if self.ff_soft > 0 else '▲'} {decimal(abs(self.ff_soft))}"


@dataclass(frozen=True)
class Piece:
    """A stretch of the CoT: a step, or text between steps (then `step` is None)."""

    text: str
    step: StepView | None


@dataclass(frozen=True)
class ChoiceView:
    """One choice with its probability before and after the step of largest effect."""

    letter: str
    text: str
    is_gold: bool
    is_direct: bool
    is_cot: bool
    before: float | None
    after: float | None


@dataclass(frozen=True)
class ProblemView:
    """One problem as shown.

    Attributes:
        problem_id: Its name.
        question: Its question.
        choices: Its choices.
        direct_letter: Answer without a CoT.
        cot_letter: Answer after the CoT.
        truth: `faithful`, `unfaithful` or None.
        pieces: The CoT, in order, nothing left out.
        steps: Its steps.
        top: The step of largest ff-soft, None when none was measured.
        is_flipped: Whether some step's unlearning changed the answer at any iteration.
        is_counted: Whether it is in the denominator of ff-hard.
        reason: Why it is not.
    """

    problem_id: str
    question: str
    choices: tuple[ChoiceView, ...]
    direct_letter: str | None
    cot_letter: str | None
    truth: str | None
    pieces: tuple[Piece, ...]
    steps: tuple[StepView, ...]
    top: StepView | None
    is_flipped: bool
    is_counted: bool
    reason: str | None


def problem_views(panel: Panel, problems: Mapping[str, Problem], *, limit: int) -> list[ProblemView]:
    """The panel's problems by largest ff-soft, at most `limit`; those without a measurement come last."""
    results = {row["problem_key"]: row for row in panel.shown_problems.to_dict("records")}
    order = sorted(panel.cots.to_dict("records"), key=lambda cot: _order(results.get(cot["problem_key"]), cot))[:limit]
    keys = {cot["problem_key"] for cot in order}
    tasks = _by(panel.shown_steps[panel.shown_steps["problem_key"].isin(keys)], "problem_key")
    steps = _by(panel.cot_steps[panel.cot_steps["cot_key"].isin({cot["key"] for cot in order})], "cot_key")
    return [
        _view(
            cot,
            problems.get(cot["problem_key"]),
            results.get(cot["problem_key"]),
            tasks.get(cot["problem_key"], []),
            steps.get(cot["key"], []),
        )
        for cot in order
    ]


def _order(result: Row | None, cot: Row) -> tuple[float, str]:
    shift = _number(result["ff_soft_max"]) if result else None
    return (np.inf if shift is None else -shift, str(cot["problem_id"]))


def _view(
    cot: Row,
    problem: Problem | None,
    result: Row | None,
    tasks: list[Row],
    rows: list[Row],
) -> ProblemView:
    by_index = {int(task["cot_step_index"]): task for task in tasks if not is_missing(task["cot_step_index"])}
    steps = tuple(_step(row, by_index.get(row["cot_step_index"]), problem) for row in rows)
    measured = [step for step in steps if step.ff_soft is not None]
    top = max(measured, key=lambda step: step.ff_soft or 0.0, default=None)
    faithful = problem.metadata.get("faithful") if problem else None
    return ProblemView(
        problem_id=str(cot["problem_id"]),
        question=problem.question if problem else "(the text of this problem is not in the store)",
        choices=tuple(_choices(cot, problem, top)),
        direct_letter=_text(cot["direct_letter"]),
        cot_letter=_text(cot["cot_letter"]),
        truth={True: "faithful", False: "unfaithful"}.get(faithful) if isinstance(faithful, bool) else None,
        pieces=tuple(_pieces(_text(cot["cot_text"]) or "", rows, steps)),
        steps=steps,
        top=top,
        is_flipped=result is not None and _is_true(result["ff_hard_any"]),
        is_counted=bool(result and result["counted"]),
        reason=_reason(cot, result),
    )


def _step(row: Row, task: Row | None, problem: Problem | None) -> StepView:
    text = _text(row["text"]) or ""
    number, truth = int(row["cot_step_index"]) + 1, step_truth(problem, text)
    if task is None or task["status"] != "ok":
        note = _text((task or row)["reason"]) or "not unlearned"
        return StepView(number, text, is_measured=False, note=note, truth=truth)
    return StepView(
        number=number,
        text=text,
        is_measured=True,
        note="",
        truth=truth,
        ff_soft=_number(task["ff_soft_final"]),
        ff_soft_mean=_number(task["ff_soft_mean"]),
        ff_soft_max=_number(task["ff_soft_max"]),
        efficacy=_number(task["efficacy"]),
        specificity=_number(task["specificity"]),
        flip=_flip(task),
        letter_after=_text(task["predicted_letter"]),
        probs=_floats(task["probs"]),
        cot_after=_text(task.get("cot_after_text")),
    )


def _flip(task: Row) -> str | None:
    if is_missing(task["flipped_any"]):
        return None
    if not task["flipped_any"]:
        return "no"
    return "yes" if _is_true(task["flipped_final"]) else "passing"


def _choices(cot: Row, problem: Problem | None, top: StepView | None) -> Iterator[ChoiceView]:
    before, after = _floats(cot["direct_probs"]), top.probs if top else ()
    for index, (letter, text) in enumerate(zip(problem.letters, problem.choices, strict=True) if problem else ()):
        yield ChoiceView(
            letter=letter,
            text=text,
            is_gold=problem is not None and problem.gold == letter,
            is_direct=cot["direct_letter"] == letter,
            is_cot=cot["cot_letter"] == letter,
            before=before[index] if index < len(before) else None,
            after=after[index] if index < len(after) else None,
        )


def _pieces(text: str, rows: list[Row], steps: tuple[StepView, ...]) -> Iterator[Piece]:
    position = 0
    for row, step in zip(rows, steps, strict=True):
        start, end = row["char_start"], row["char_end"]
        if is_missing(start) or is_missing(end) or not position <= start <= end <= len(text):
            continue
        if start > position:
            yield Piece(text[position : int(start)], None)
        yield from _without_margins(text[int(start) : int(end)], step)
        position = int(end)
    if position < len(text):
        yield Piece(text[position:], None)


def _without_margins(text: str, step: StepView) -> Iterator[Piece]:
    # Shading starts at the first letter: segmentation leaves the blank before a sentence with it.
    inner = text.strip()
    if not inner:
        yield Piece(text, step)
        return
    start = text.index(inner)
    for part, owner in ((text[:start], None), (inner, step), (text[start + len(inner) :], None)):
        if part:
            yield Piece(part, owner)


def _reason(cot: Row, result: Row | None) -> str | None:
    if cot["status"] != "ok":
        return _text(cot["reason"]) or str(cot["status"])
    if result is None:
        return (
            "direct and CoT answers differ"
            if not is_missing(cot["agree"]) and not cot["agree"]
            else "no step was unlearned"
        )
    return _text(result["reason"])


def _by(frame: pd.DataFrame, key: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in frame.sort_values("cot_step_index", kind="stable").to_dict("records"):
        groups.setdefault(str(row[key]), []).append(row)
    return groups


def _is_true(value: Any) -> bool:
    return not is_missing(value) and bool(value)


def _number(value: Any) -> float | None:
    return None if is_missing(value) else float(value)


def _floats(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in value) if isinstance(value, np.ndarray | list | tuple) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
