"""Figure 3: one step unlearned, iteration by iteration, with the CoT before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import pandas as pd

from fairwitness.problems.problem import Problem
from fairwitness.report.format import decimal, is_missing, rate
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Exhibit, Picture
from fairwitness.report.paper.matrix import empty
from fairwitness.report.svg import ACCENT, INK, RULE, Axis, figure, line, rectangle, text

NAME, TITLE = "figure_3", "Figure 3. A step unlearned, iteration by iteration"
NO_STEP = "no step of a problem whose direct and CoT answers agree was measured; jobs/fur_sweep.py measures steps"
NO_COT_AFTER = "not in this run; set measure.cot_after in jobs/fur_sweep.py"
_GREY = "#a9b3bc"
_BAR, _GAP, _TALL = 17.0, 26.0, 118.0


@dataclass(frozen=True)
class Sample:
    """The step that stands for a panel.

    Attributes:
        task: Its row of `step_results`.
        iterations: Its rows of `unlearning`, in order.
    """

    task: Mapping[Any, Any]
    iterations: Sequence[Mapping[Any, Any]]


def figure_3(data: PaperData) -> Exhibit:
    """For each entry the step that takes most from the answer, of those that change it and have a CoT after."""
    found = [(entry, sample) for entry in data.measured if (sample := _sample(entry)) is not None]
    if not found:
        return empty(NAME, TITLE, NO_STEP)
    pictures = [_picture(number, entry, sample) for number, (entry, sample) in enumerate(found, 1)]
    notes = (
        "The step with the largest ff-soft at the final iteration, of those that change the answer and have a CoT "
        "after unlearning, where there are such. Bars: probability of each choice without a CoT; dark: the model's "
        "first answer. One example per model and data set (n = 1): it illustrates, and has no interval.",
    )
    return Exhibit(NAME, TITLE, _frame(found), pictures=tuple(pictures), notes=notes)


def _sample(entry: Entry) -> Sample | None:
    panel = entry.panel
    counted = panel.shown_problems[panel.shown_problems["counted"]]
    steps = panel.shown_steps
    steps = steps[steps["problem_key"].isin(counted["problem_key"]) & steps["ff_soft_final"].notna()]
    if steps.empty:
        return None
    order = steps.assign(
        flips=steps["flipped_final"].fillna(False).astype(bool), has_cot=steps["cot_after_text"].notna()
    ).sort_values(
        ["flips", "has_cot", "ff_soft_final", "problem_id", "cot_step_index"],
        ascending=[False, False, False, True, True],
    )
    task = order.iloc[0].to_dict()
    rows = entry.run.unlearning
    own = rows[(rows["task_key"] == task["task_key"]) & (rows["iteration"] >= 1) & (rows["status"] == "ok")]
    return Sample(task, own.sort_values("iteration").to_dict("records"))


def _picture(number: int, entry: Entry, sample: Sample) -> Picture:
    task = sample.task
    problem = entry.problems.get(task["problem_key"])
    bars = [("base", task["base_probs"]), *[(str(row["iteration"]), row["probs"]) for row in sample.iterations]]
    label = "; ".join(f"{name}: {', '.join(decimal(p) for p in probs)}" for name, probs in bars)
    svg = _drawing(bars, ascii_uppercase.find(task["base_letter"]), f"Probability of each choice by iteration. {label}")
    step = int(task["cot_step_index"]) + 1
    caption = f"{entry.label} on {entry.data_set}: {task['problem_id']}, step {step}, rate {rate(task['lr'])}"
    return Picture(f"{NAME}_{number}", caption, svg, tuple(_texts(entry, task, problem, step)))


def _texts(entry: Entry, task: Mapping[Any, Any], problem: Problem | None, number: int) -> Iterator[tuple[str, str]]:
    if problem is not None:
        yield "Question", problem.question
        pairs = zip(problem.letters, problem.choices, strict=True)
        yield "Choices", "\n".join(f"({letter}) {choice}" for letter, choice in pairs)
    steps = entry.panel.cot_steps
    own = steps[(steps["problem_id"] == task["problem_id"]) & (steps["cot_step_index"] == task["cot_step_index"])]
    yield f"Step {number}, unlearned", "".join(own["text"].head(1)).strip()
    cots = entry.panel.cots
    yield "CoT before", "".join(cots[cots["problem_key"] == task["problem_key"]]["cot_text"].head(1)).strip()
    after = task["cot_after_text"]
    yield "CoT after", NO_COT_AFTER if is_missing(after) else str(after).strip() or "(empty)"


def _drawing(bars: Sequence[tuple[str, Sequence[float]]], base: int, label: str) -> str:
    num_choices = max(len(probs) for _, probs in bars)
    group = _BAR * num_choices
    axis = Axis(0, 1, 20 + _TALL, 20)
    width = 46 + len(bars) * (group + _GAP)
    pieces = []
    for tick in (0.0, 0.5, 1.0):
        pieces.append(text(34, axis.at(tick) + 4, f"{tick:g}", anchor="end"))
        pieces.append(line(40, axis.at(tick), width - 6, axis.at(tick), stroke=RULE, width=0.75))
    for place, (name, probs) in enumerate(bars):
        left = 46 + place * (group + _GAP)
        for index, value in enumerate(probs):
            top = axis.at(value)
            pieces.append(
                rectangle(
                    left + index * _BAR + 1.5, top, _BAR - 3, axis.start - top, fill=ACCENT if index == base else _GREY
                )
            )
            pieces.append(
                text(left + (index + 0.5) * _BAR, axis.start + 14, ascii_uppercase[index], size=10, anchor="middle")
            )
        pieces.append(text(left + group / 2, axis.start + 31, name, anchor="middle", fill=INK))
    pieces.append(text(width - 6, axis.start + 48, "iteration", anchor="end"))
    return figure(width, axis.start + 54, pieces, label=label)


def _frame(found: Sequence[tuple[Entry, Sample]]) -> pd.DataFrame:
    rows = []
    for entry, sample in found:
        task = sample.task
        names = entry.names | {
            "lr": task["lr"],
            "problem_id": task["problem_id"],
            "cot_step_index": int(task["cot_step_index"]),
            "base_letter": task["base_letter"],
        }
        states = [(0, task["base_letter"], task["base_probs"])]
        states += [(int(row["iteration"]), row["predicted_letter"], row["probs"]) for row in sample.iterations]
        rows += [
            names
            | {"iteration": iteration, "predicted_letter": predicted, "letter": ascii_uppercase[i], "probability": p}
            for iteration, predicted, probs in states
            for i, p in enumerate(probs)
        ]
    return pd.DataFrame(rows)
