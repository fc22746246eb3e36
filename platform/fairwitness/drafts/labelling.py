"""Labels of a draft's steps by a judge: the sentences are numbered, the judge names those that turn back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairwitness.drafts.blocks import DraftStep
from fairwitness.errors import ItemError
from fairwitness.judges.protocol import ChatModel
from fairwitness.judges.template import load_template
from fairwitness.problems.problem import Problem

STEPS_PER_PROMPT = 60
MAX_REPLY_TOKENS = 600

_LINE = re.compile(r"^[\s>*_#-]*backtrack[\s*_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Labelled:
    """Labelled steps and who labelled them; with a reason where that failed."""

    steps: tuple[DraftStep, ...]
    by: str
    reason: str | None = None


class Labeller:
    """Keeps the labels that the rules gave, or asks a judge."""

    def __init__(self, judge: ChatModel | None) -> None:
        """Takes the judge; None for the rules.

        Raises:
            ConfigError: The template cannot be used.
        """
        self._judge = judge
        self._template = load_template("draft_steps", None, required=("question", "cot_steps"))

    def label(self, drafts: Sequence[tuple[Problem, Sequence[DraftStep], str]]) -> list[Labelled]:
        """Labels every draft; one whose judge's reply cannot be read keeps its steps and has a reason."""
        if self._judge is None:
            return [Labelled(tuple(steps), "rules") for _, steps, _ in drafts]
        windows = [
            (number, start)
            for number, (_, steps, _) in enumerate(drafts)
            for start in range(0, len(steps), STEPS_PER_PROMPT)
        ]
        prompts = []
        for number, start in windows:
            problem, steps, text = drafts[number]
            lines = [
                f"{i + 1}. {' '.join(text[one.start : one.end].split())}"
                for i, one in enumerate(steps[start : start + STEPS_PER_PROMPT])
            ]
            prompts.append(self._template.fill({"question": problem.question, "cot_steps": "\n".join(lines)}))
        steps_of = [list(steps) for _, steps, _ in drafts]
        reasons: list[str | None] = [None] * len(drafts)
        for position, reply in self._judge.replies(prompts, max_tokens=MAX_REPLY_TOKENS):
            number, start = windows[position]
            size = min(STEPS_PER_PROMPT, len(steps_of[number]) - start)
            try:
                turns = read_turns(reply.text, size) if reply.text is not None else None
            except ItemError as error:
                turns, reasons[number] = set(), f"decomposer: {error}"
            if turns is None:
                turns, reasons[number] = set(), f"decomposer: {reply.error}"
            for i in range(size):
                one = steps_of[number][start + i]
                steps_of[number][start + i] = replace(one, label="backtrack" if i + 1 in turns else "continue")
        return [
            Labelled(tuple(steps), self._judge.name, reason) for steps, reason in zip(steps_of, reasons, strict=True)
        ]


def read_turns(reply: str, count: int) -> set[int]:
    """Numbers of the backtrack steps from a reply that ends with a line `backtrack: 3, 7`, or `backtrack: none`.

    Args:
        reply: The judge's reply.
        count: How many steps were shown.

    Raises:
        ItemError: There is no such line, two lines that differ, or a number that was not shown.
    """
    lines = {line.strip(" \t*_`.").lower() for line in _LINE.findall(reply)}
    if len(lines) != 1:
        raise ItemError("the reply has no line `backtrack: …`" if not lines else "the judge contradicts itself")
    (line,) = lines
    if line == "none":
        return set()
    numbers = re.split(r"\s*,\s*", line)
    if not all(number.isdigit() and 1 <= int(number) <= count for number in numbers):
        raise ItemError(f"{line[:60]!r} is no list of numbers from 1 to {count}")
    return {int(number) for number in numbers}
