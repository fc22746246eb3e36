"""Conclusions, choices and scripts from the file of drafts to the rows: what is read, where a step is put, what φ says.

One measurement of many problems; every test looks at its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

import pytest

from fairwitness.lm.config import ModelConfig
from fairwitness.lm.facts import ModelFacts
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.tokens import decode
from tests.helpers.drafts import draft_settings, run_plain, with_context, write_drafts
from tests.helpers.sweeps import problem, rows_of, write_problems

COLOURS = ["red", "dark red", "a dark red fox", "none of the above"]
MANY = [f"animal {letter}" for letter in ascii_uppercase]


class Case(NamedTuple):
    """A draft, the letter that it concludes, and what its problem is."""

    draft: str
    letter: str | None
    choices: list[str] = COLOURS
    question: str = "Which colour has the fox?"


CASES: Mapping[str, Case] = {
    "longer choice": Case("Red is a colour. The answer is dark red.", "B"),
    "shorter choice": Case("Dark red is a colour. The answer is red.", "A"),
    "longest choice": Case("It has to be a dark red fox.", "C"),
    "article": Case("A fox is red. A den is dark. The answer is a fox that nobody knows.", None),
    "article, then a choice": Case("A fox is here. The answer is a dark red fox.", "C"),
    "article alone": Case("A fox sleeps. A den is dark.", None),
    "letter A": Case("A fox is here. The answer is A because foxes are red.", "A"),
    "dollars": Case("So it is this. The answer is $B$", "B"),
    "bold": Case("So it is this. The correct answer is **B**.", "B"),
    "boxed": Case("So it is this. \\boxed{B}", "B"),
    "boxed text": Case("So it is this. \\boxed{\\text{dark red}}", "B"),
    "small letter in brackets": Case("So it is this. The answer is (b).", "B"),
    "half a bracket": Case("So it is this. The answer is B)", "B"),
    "none of the above, a choice": Case("Nothing fits. The answer is none of the above.", "D"),
    "none of the above, no choice": Case("Nothing fits. The answer is none of the above.", None, COLOURS[:3]),
    "other order, by letter": Case(
        "Let me list them: A) dark red B) red C) none of the above D) a dark red fox. So the answer is B) red.", "B"
    ),
    "other order, by text": Case(
        "Let me list them: A) dark red B) red C) none of the above D) a dark red fox. So the answer is red.", "A"
    ),
    "no conclusion": Case("I wonder which one it is. Is the answer B?", None),
    "taken back": Case("The answer is A. Wait, no. The answer is not A. The answer is B.", "B"),
    "two choices": Case("It is easy. The answer is B.", "B", ["yes", "no"]),
    "choice of two denied": Case("It is hard. The answer is not B.", None, ["yes", "no"]),
    "26 choices": Case("There are many. Wait, let me check. The answer is Z.", "Z", MANY),
    "27th letter": Case("There are many. The answer is animal 27.", None, MANY),
    "Chinese": Case(
        "狐狸睡在洞里。等等，猫头鹰睡在树上。另外，熊睡在山洞里！或者，是这样吗？所以答案是B。",
        "B",
        ["狐狸", "猫头鹰", "熊", "青蛙"],
        "哪种动物睡在树上？",
    ),
    "Chinese, by text": Case("狐狸睡在洞里。因此，答案是猫头鹰。", "B", ["狐狸", "猫头鹰"], "哪种动物睡在树上？"),
    "Japanese": Case(
        "狐は巣穴で眠る。待って、本当？梟は木で眠る。答えは B です。", "B", ["狐", "梟"], "木で眠るのは？"
    ),
    "Arabic": Case(
        "الثعالب تنام في الجحور. انتظر، هل هذا صحيح؟ البوم ينام في الأشجار. إذن الجواب هو B.",
        "B",
        ["الثعلب", "البومة", "الدب"],
        "أي حيوان ينام في الأشجار؟",
    ),
    "Cyrillic": Case(
        "Лисы спят в норах. Подожди, верно ли это? Совы спят на деревьях. Итак, ответ: B.",
        "B",
        ["лиса", "сова", "медведь"],
        "Какое животное спит на дереве?",
    ),
    "Cyrillic letter": Case("Совы спят на деревьях. Итак, ответ: Б.", None, ["лиса", "сова"], "Кто спит на дереве?"),
}
BLOCKS = {"Chinese": 3, "Chinese, by text": 0, "Japanese": 1, "Arabic": 1, "Cyrillic": 1}
NUM_STEPS = {"Chinese": 5, "Chinese, by text": 2, "Japanese": 4, "Arabic": 4, "Cyrillic": 4}


class Measured(NamedTuple):
    """What one measurement of all cases gave."""

    drafts: dict[str, dict[str, Any]]
    rows: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    facts: ModelFacts


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Measured:
    folder = tmp_path_factory.mktemp("texts")
    model = with_context(tiny_folder("llama"), folder / "model", 2048)
    records = [
        problem(n, id=name, question=f"{case.question} ({n})", choices=case.choices, answer="A")
        for n, (name, case) in enumerate(CASES.items())
    ]
    data = write_problems(folder / "animals.jsonl", records)
    drafts = [{"problem_id": name, "draft": case.draft} for name, case in CASES.items()]
    changes = {"limits": {"continuation": 3, "answer": 3}, "engine": {"drafts_per_item": 64}}
    file = write_drafts(folder / "drafts.jsonl", drafts)
    result = run_plain(draft_settings(folder / "results", model, data, file, **changes))
    assert result.exit_code == 0
    found = [rows_of(result.run.store_path, table) for table in ("drafts", "continuations", "draft_steps")]
    by_name = {row["problem_id"]: row for row in found[0]}
    return Measured(by_name, found[1], found[2], inspect_model(ModelConfig(model=str(model))))


@pytest.mark.parametrize("name", CASES)
def test_conclusion(measured: Measured, name: str) -> None:
    row, case = measured.drafts[name], CASES[name]
    assert row["draft_text"] == case.draft
    assert row["conclusion_letter"] == case.letter
    if case.letter is None:
        assert (row["status"], row["reason"]) == ("skipped", "the draft states no conclusion")
        assert not [one for one in measured.rows if one["problem_id"] == name]
    else:
        assert row["status"] == "ok"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.letter])
def test_what_followers_conclude(measured: Measured, name: str) -> None:
    case, letter = CASES[name], str(CASES[name].letter)
    letters = ascii_uppercase[: len(case.choices)]
    rows = [one for one in measured.rows if one["problem_id"] == name and one["dimension"] == "intra"]
    assert len(rows) == 12
    # The concluded choice moves up by one, the first one to the last place.
    shifted = letters[letters.index(letter) - 1]
    for row in rows:
        is_shift = row["intervention"] == "shift_mapping"
        assert row["expected_letters"] == ([shifted] if is_shift else [one for one in letters if one != letter])
        if is_shift:
            assert f"{shifted}) {case.choices[letters.index(letter)]}" in row["inserted_text"]


@pytest.mark.parametrize("name", NUM_STEPS)
def test_steps_of_other_scripts(measured: Measured, name: str) -> None:
    text = CASES[name].draft
    steps = [one for one in measured.steps if one["problem_id"] == name]
    steps.sort(key=lambda one: int(one["cot_step_index"]))
    assert "".join(text[one["char_start"] : one["char_end"]] for one in steps) == text
    assert (len(steps), measured.drafts[name]["num_blocks"]) == (NUM_STEPS[name], BLOCKS[name])
    # An insertion stands after a whole step: the tokens before it are its text, no character is cut in two.
    tokenizer = load_tokenizer(measured.facts.folder, ModelConfig(model=str(measured.facts.folder)))
    ids = measured.drafts[name]["draft_ids"]
    for one in steps:
        assert decode(tokenizer, ids[: one["token_end"]]).strip() == text[: one["char_end"]].strip()
    ends = {one["token_end"] for one in steps}
    shifted = [r for r in measured.rows if (r["problem_id"], r["intervention"]) == (name, "shift_mapping")]
    placed = [one for one in shifted if one["status"] != "skipped"]
    assert len(placed) == 2 * min(3, len(steps))
    assert {one["inserted_at"] for one in placed} <= ends
    assert len({one["inserted_at"] for one in placed}) == min(3, len(steps))


def test_every_continuation_is_a_row(measured: Measured) -> None:
    concluded = [name for name, case in CASES.items() if case.letter]
    assert len(measured.rows) == 14 * len(concluded)
    assert {row["status"] for row in measured.rows} <= {"ok", "truncated", "skipped"}
    assert all(row["reason"] for row in measured.rows if row["status"] != "ok")
