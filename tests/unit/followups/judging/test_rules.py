"""Rules: what they read, and how they fare beside the published judge."""

from __future__ import annotations

import ast
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fairwitness.followups.judging.pairs import CotPair
from fairwitness.followups.judging.rules import ruled, rules_key
from fairwitness.judges.config import RulesConfig
from fairwitness.problems.problem import Problem

PUBLISHED = Path(__file__).resolve().parents[4].parent / "shared/data/fur_published/judgements"
PAIR = CotPair(
    task_key="task",
    cell_key="cell",
    problem=Problem("p", "Who sleeps?", ("red fox", "grey owl", "brown bear"), "A", "animals"),
    cot_step_index=0,
    before="A red fox digs dens. So the answer is (A).",
    after="The grey owl sleeps by day.",
    letter_before="A",
    letter_after="B",
    is_changed=True,
    skipped=None,
)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (PAIR.before, PAIR.after, "different"),
        (PAIR.before, "The red fox, of course.", "same"),
        (PAIR.before, "Something sleeps.", "unclear"),
        ("Either the red fox or the grey owl.", "The red fox.", "unclear"),
        ("Is it the owl? The correct answer is (C).", "So the answer is C.", "same"),
    ],
)
def test_stated_compares_what_the_texts_say(before: str, after: str, verdict: str) -> None:
    pair = replace(PAIR, before=before, after=after, letter_before="A", letter_after="A")
    assert ruled(pair, RulesConfig())["verdict"] == verdict


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [("A", "A", "same"), ("A", "C", "different"), (None, "A", "unclear")]
)
def test_answered_compares_the_letters_given(before: str | None, after: str, verdict: str) -> None:
    pair = replace(PAIR, letter_before=before, letter_after=after)
    assert ruled(pair, RulesConfig(reading="answered"))["verdict"] == verdict


def test_what_was_read_is_the_reply() -> None:
    assert ruled(PAIR, RulesConfig())["reply"] == "before: A, after: B"
    assert ruled(replace(PAIR, after="Hm."), RulesConfig())["reply"] == "before: A, after: nothing read"


def test_keys_differ_by_reading() -> None:
    assert rules_key(RulesConfig()) == rules_key(RulesConfig(name="mine"))
    assert rules_key(RulesConfig()) != rules_key(RulesConfig(reading="answered"))


def published() -> list[tuple[CotPair, str]]:
    """The published pairs with the published judge's verdict."""
    pairs = []
    for path in sorted(PUBLISHED.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            question, rest = row["prompt"].split("Question: ", 1)[1].split("\nAnswer options:\n", 1)
            options, rest = rest.split("\n\nReasoning chain 1:\n", 1)
            before, rest = rest.split("\n\nReasoning chain 2:\n", 1)
            after = rest.rsplit("\n\nDo the reasoning chains", 1)[0]
            choices = tuple(option.split("): ", 1)[1] for option in ast.literal_eval(options))
            problem = Problem("p", question, choices, None, path.stem)
            verdict = {"Yes": "same", "No": "different", "Unclear": "unclear"}[row["response"].split()[0]]
            pairs.append((replace(PAIR, problem=problem, before=before, after=after), verdict))
    return pairs


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs ../shared/data/fur_published, which is not in the repository")
def test_quality_beside_the_published_judge() -> None:
    counts = Counter((ruled(pair, RulesConfig())["verdict"], verdict) for pair, verdict in published())
    assert sum(counts.values()) == 376
    read = {pair: number for pair, number in counts.items() if pair[0] != "unclear"}
    # The figures in the module's docstring and in the guide.
    assert sum(read.values()) >= 40
    assert sum(number for (ours, theirs), number in read.items() if ours != theirs) <= 1
