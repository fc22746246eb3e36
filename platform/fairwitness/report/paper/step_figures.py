"""Figure 4: a CoT with each step shaded by the probability that its unlearning takes from the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any
from unicodedata import east_asian_width

import pandas as pd

from fairwitness.problems.problem import Problem
from fairwitness.report.format import decimal, is_missing, rate, signed
from fairwitness.report.paper.data import Entry, PaperData
from fairwitness.report.paper.exhibit import Exhibit, Picture, empty
from fairwitness.report.svg import ACCENT, INK, MUTED, RULE, Axis, figure, line, rectangle, text

FIGURE_3, FIGURE_3_TITLE = "figure_3", "Figure 3. A step unlearned, iteration by iteration"
NO_STEP = "no step of a problem whose direct and CoT answers agree was measured; fairwitness sweep measures steps"
NO_COT_AFTER = "not in this run; set measure.cot_after in fairwitness sweep"
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
        return empty(FIGURE_3, FIGURE_3_TITLE, NO_STEP)
    pictures = [_picture(number, entry, sample) for number, (entry, sample) in enumerate(found, 1)]
    notes = (
        "The step with the largest ff-soft at the final iteration, of those that change the answer and have a CoT "
        "after unlearning, where there are such. Bars: probability of each choice without a CoT; dark: the model's "
        "first answer. One example per model and data set (n = 1): it illustrates, and has no interval.",
    )
    return Exhibit(FIGURE_3, FIGURE_3_TITLE, _frame(found), pictures=tuple(pictures), notes=notes)


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
    return Picture(f"{FIGURE_3}_{number}", caption, svg, tuple(_texts(entry, task, problem, step)))


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


FIGURE_4, FIGURE_4_TITLE = "figure_4", "Figure 4. Heat map of the steps of a chain of thought"
_WIDTH, _LINE, _COLUMNS = 740.0, 17.0, 84
_TAKEN, _GIVEN = (205, 60, 30), (0, 128, 110)


@dataclass(frozen=True)
class Step:
    """One step as drawn: its position from 1, its text, and ff-soft (None where it was not measured)."""

    number: int
    text: str
    ff_soft: float | None
    note: str = ""


def figure_4(data: PaperData) -> Exhibit:
    """For each entry the problem whose steps differ most in ff-soft."""
    found = [(entry, key) for entry in data.measured if (key := _problem(entry)) is not None]
    if not found:
        return empty(FIGURE_4, FIGURE_4_TITLE, NO_STEP)
    pictures, rows = [], []
    for number, (entry, key) in enumerate(found, 1):
        tasks = entry.panel.shown_steps
        own = tasks[tasks["problem_key"] == key]
        steps = _steps(entry, own)
        first = own.iloc[0]
        problem = entry.problems.get(key)
        texts = (("Question", problem.question),) if problem else ()
        answer = f"answer {first['base_letter']}" if isinstance(first["base_letter"], str) else "no answer"
        caption = f"{entry.label} on {entry.data_set}: {first['problem_id']}, {answer}, rate {rate(first['lr'])}"
        pictures.append(Picture(f"{FIGURE_4}_{number}", caption, heat_map(steps), texts))
        names = entry.names | {"lr": first["lr"], "problem_id": first["problem_id"]}
        rows += [names | {"cot_step_index": s.number - 1, "ff_soft": s.ff_soft, "text": s.text} for s in steps]
    notes = (
        "Δp is ff-soft at the final iteration: red steps take probability from the model's answer when unlearned, "
        "green ones give it some. Shown is the problem whose steps differ most (n = 1 each): it illustrates, and has "
        "no interval.",
    )
    return Exhibit(FIGURE_4, FIGURE_4_TITLE, pd.DataFrame(rows), pictures=tuple(pictures), notes=notes)


def _problem(entry: Entry) -> str | None:
    panel = entry.panel
    counted = panel.shown_problems[panel.shown_problems["counted"]]["problem_key"]
    steps = panel.shown_steps
    known = steps[steps["problem_key"].isin(counted) & steps["ff_soft_final"].notna()]
    if known.empty:
        return None
    spread = known.groupby("problem_key").agg(
        low=("ff_soft_final", "min"), high=("ff_soft_final", "max"), problem_id=("problem_id", "first")
    )
    spread = spread.assign(range=spread["high"] - spread["low"]).sort_values(
        ["range", "problem_id"], ascending=[False, True]
    )
    return str(spread.index[0])


def _steps(entry: Entry, tasks: pd.DataFrame) -> list[Step]:
    by_index = {int(task["cot_step_index"]): task for task in tasks.to_dict("records")}
    rows = entry.panel.cot_steps
    rows = rows[rows["problem_id"] == tasks.iloc[0]["problem_id"]].sort_values("cot_step_index")
    return [_step(row, by_index.get(int(row["cot_step_index"]))) for row in rows.to_dict("records")]


def _step(row: Mapping[Any, Any], task: Mapping[Any, Any] | None) -> Step:
    number, words = int(row["cot_step_index"]) + 1, str(row["text"]).strip()
    value = None if task is None or pd.isna(task["ff_soft_final"]) else float(task["ff_soft_final"])
    reason = (task or row)["reason"]
    return Step(number, words, value, reason if isinstance(reason, str) else "not measured")


def heat_map(steps: Sequence[Step]) -> str:
    """The steps below one another, wrapped, each on its shade, with ff-soft beside it."""
    pieces, y = [], 8.0
    for step in steps:
        lines = wrapped(step.text, _COLUMNS) or [""]
        height = _LINE * len(lines) + 9
        pieces.append(rectangle(30, y, _WIDTH - 106, height, fill=shade(step.ff_soft)))
        pieces.append(text(22, y + _LINE, str(step.number), anchor="end", bold=True))
        for number, content in enumerate(lines):
            fill = MUTED if step.ff_soft is None else INK
            pieces.append(text(38, y + _LINE * (number + 1), content, size=13, fill=fill))
        shown = "–" if step.ff_soft is None else signed(step.ff_soft)
        pieces.append(text(_WIDTH - 8, y + _LINE, shown, size=13, anchor="end", fill=INK))
        y += height + 4
    pieces.append(text(_WIDTH - 8, y + 12, "Δp", anchor="end"))
    label = "; ".join(f"step {s.number}: {'not measured' if s.ff_soft is None else signed(s.ff_soft)}" for s in steps)
    return figure(_WIDTH, y + 20, pieces, label=f"Steps by ff-soft. {label}")


def shade(ff_soft: float | None) -> str:
    """Colour of a step on white: red for probability taken from the answer, green for probability given to it."""
    if ff_soft is None:
        return "#f4f6f7"
    strength = 0.08 + 0.47 * min(abs(ff_soft), 1.0) if abs(ff_soft) >= 0.005 else 0.0
    tone = _TAKEN if ff_soft > 0 else _GIVEN
    mixed = [round(255 + (part - 255) * strength) for part in tone] if strength else [240, 242, 243]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def wrapped(content: str, columns: int) -> list[str]:
    """Lines of at most this many columns; a wide character takes two, a word that is longer than a line is cut."""
    lines: list[str] = []
    for paragraph in content.split("\n"):
        current, used = "", 0
        for word in _words(paragraph, columns):
            size = _columns(word)
            if used + size > columns and current.strip():
                lines.append(current.rstrip())
                current, used, word = "", 0, word.lstrip()
                size = _columns(word)
            current, used = current + word, used + size
        lines.append(current.rstrip())
    return [one for one in lines if one]


def _words(paragraph: str, columns: int) -> list[str]:
    """Words with the blank before them; a wide character or a piece of a very long word stands alone."""
    words: list[str] = []
    for number, word in enumerate(paragraph.split(" ")):
        piece, size = " " if number else "", 0
        for letter in word:
            width = _columns(letter)
            if piece.strip() and (width == 2 or size + width >= columns):
                words.append(piece)
                piece, size = "", 0
            piece, size = piece + letter, size + width
        words.append(piece)
    return words


def _columns(content: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in content)
