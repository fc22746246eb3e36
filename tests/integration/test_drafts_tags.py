"""Tags around drafts, regular or not, and drafts that leave no room: what is counted, what is skipped, what goes on.

A tiny random model writes no tag by itself; where the test is about what a model writes, its tokens are scripted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import fairwitness.drafts.engine as draft_engine
from fairwitness.lm.config import ModelConfig
from fairwitness.lm.continuation import EOS, LENGTH, Continuation, Settings, Tree, before_stop
from fairwitness.lm.inspect import inspect_model, load_tokenizer
from fairwitness.lm.model import LanguageModel
from fairwitness.lm.tokens import decode, encode
from tests.helpers.drafts import DRAFT, draft_settings, run_plain, with_context, write_drafts
from tests.helpers.sweeps import problem, rows_of, write_problems

THOUGHT = {"open": "<|thought|>", "close": "<|/thought|>"}
PREFILLS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ '[assistant]<think>\\n' }}"
LEAVES_OUT = PREFILLS.replace("<think>\\n", "")


def measure(
    folder: Path, model: Path, texts: Mapping[str, str] | None, /, num_own: int = 1, **changes: Any
) -> dict[str, list[dict[str, Any]]]:
    """Rows of one measurement by problem id; without texts of the models' own drafts."""
    names = list(texts or [f"own {n}" for n in range(num_own)])
    data = write_problems(folder / "animals.jsonl", [problem(n, id=name) for n, name in enumerate(names)])
    drafts = None
    if texts is not None:
        drafts = write_drafts(
            folder / "drafts.jsonl", [{"problem_id": name, "draft": text} for name, text in texts.items()]
        )
    result = run_plain(draft_settings(folder / "results", model, data, drafts, **changes))
    assert result.exit_code == 0
    return {table: rows_of(result.run.store_path, table) for table in ("drafts", "continuations")}


def script(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The model writes this where it writes a draft; the rest it generates itself."""
    made = draft_engine.continue_trees

    def scripted(lm: LanguageModel, trees: Sequence[Tree], settings: Settings) -> list[list[Continuation]]:
        if any(tree.prefix for tree in trees):
            return made(lm, trees, settings)
        ids = encode(lm.tokenizer, text)[: settings.max_new_tokens]
        name = next(
            (n for n, texts in settings.stops.items() if any(t in decode(lm.tokenizer, ids) for t in texts)), None
        )
        kept = before_stop(lm.tokenizer, ids, settings.stops.get(name or "", ()))
        return [[Continuation(tuple(kept), name or LENGTH)] for _ in trees]

    monkeypatch.setattr(draft_engine, "continue_trees", scripted)


@pytest.fixture
def model(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> Path:
    return with_context(tiny_folder("llama"), tmp_path / "model", 4096)


def test_tags_in_a_file(model: Path, tmp_path: Path) -> None:
    texts = {
        "regular": f"<think>\n{DRAFT}\n</think>\n\nThe answer is C.",
        "prefilled": f"{DRAFT}\n</think>\n\nThe answer is C.",
        "bare": DRAFT,
        "unclosed": f"<think>\n{DRAFT}",
        "empty": "<think>\n\n</think>\n\nThe answer is C.",
        "empty, prefilled": "</think>The answer is C.",
        "doubled": f"<think><think>{DRAFT}</think>",
        "nested": f"<think>I think. <think>{DRAFT}</think> I thought.</think>",
        "closed twice": f"<think>{DRAFT}</think></think>The answer is C.",
        "reopened": f"<think>{DRAFT}</think>The answer is C. <think>The answer is D.</think>",
    }
    rows = measure(tmp_path, model, texts)
    drafts = {row["problem_id"]: row for row in rows["drafts"]}
    irregular = {name: row["irregular"] for name, row in drafts.items()}
    assert irregular == {
        "regular": [],
        "prefilled": [],
        "bare": [],
        "unclosed": ["unclosed"],
        "empty": ["empty"],
        "empty, prefilled": ["empty"],
        "doubled": ["doubled"],
        "nested": ["reopened", "doubled"],
        "closed twice": ["doubled"],
        "reopened": ["reopened"],
    }
    for name, row in drafts.items():
        if "empty" in name:
            assert (row["status"], row["reason"]) == ("skipped", "the draft is empty")
        else:
            assert (row["status"], row["conclusion_letter"], row["finish"]) == ("ok", "B", "given")
            assert row["draft_text"] == (f"I think. <think>{DRAFT}" if name == "nested" else DRAFT)


@pytest.mark.parametrize("tags", [None, {"open": "<seed:think>", "close": "</seed:think>"}])
def test_a_file_with_tags_of_its_own(model: Path, tmp_path: Path, tags: dict[str, str] | None) -> None:
    texts = {"one": f"<|thought|>{DRAFT}<|/thought|>The answer is C."}
    files = [{"name": "other", "path": str(tmp_path / "drafts.jsonl"), "tags": THOUGHT}]
    (row,) = measure(tmp_path, model, texts, tags=tags, draft_files=files)["drafts"]
    assert (row["draft_text"].strip(), row["irregular"], row["conclusion_letter"]) == (DRAFT, [], "B")


def test_usual_tags_are_taken_off_for_a_model_without_tags(model: Path, tmp_path: Path) -> None:
    texts = {"one": f"<think>\n{DRAFT}\n</think>\n\nThe answer is C."}
    (row,) = measure(tmp_path, model, texts, tags=None)["drafts"]
    assert (row["draft_text"].strip(), row["conclusion_letter"]) == (DRAFT, "B")


@pytest.mark.parametrize("template", [PREFILLS, LEAVES_OUT])
@pytest.mark.parametrize(
    ("written", "finish", "irregular", "status"),
    [
        (f"{DRAFT}\n</think>\n\nIt is B.", "tag", [], "ok"),
        (DRAFT, "length", ["unclosed"], "ok"),
        (f"<think>\n{DRAFT}\n</think>", "tag", ["doubled"], "ok"),
        (f"I think. <think>{DRAFT}</think> I thought.</think>", "tag", ["doubled"], "ok"),
        ("</think>It is B.", "tag", ["empty"], "skipped"),
        ("\n\n</think>\n\nIt is B.", "tag", ["empty"], "skipped"),
    ],
)
def test_what_a_model_writes(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    written: str,
    finish: str,
    irregular: list[str],
    status: str,
) -> None:
    (model / "chat_template.jinja").write_text(template)
    script(monkeypatch, written)
    changes = {"models": [{"model": str(model), "prompt_style": "chat"}], "limits": {"draft": 400}}
    rows = measure(tmp_path, model, None, **changes)
    (row,) = rows["drafts"]
    assert (row["finish"], row["irregular"], row["status"]) == (finish, irregular, status)
    tokenizer = load_tokenizer(inspect_model(ModelConfig(model=str(model))).folder, ModelConfig(model=str(model)))
    prompt = decode(tokenizer, row["prompt_ids"])
    # The tag is there once, whoever is to write it.
    assert prompt.endswith("[assistant]<think>\n")
    assert "</think>" not in row["draft_text"]
    assert len(rows["continuations"]) == (14 if status == "ok" else 0)


def test_a_question_that_writes_out_a_special_token(model: Path, tmp_path: Path) -> None:
    data = write_problems(tmp_path / "animals.jsonl", [problem(0, question="What does <eos> end?")])
    drafts = write_drafts(tmp_path / "drafts.jsonl", [{"problem_id": "p0", "draft": f"It is <eos>. {DRAFT}"}])
    result = run_plain(draft_settings(tmp_path / "results", model, data, drafts))
    (row,) = rows_of(result.run.store_path, "drafts")
    facts = inspect_model(ModelConfig(model=str(model)))
    assert not set(facts.eos_ids) & {*row["prompt_ids"], *row["draft_ids"]}
    assert "What does <eos> end?" in decode(
        load_tokenizer(facts.folder, ModelConfig(model=str(model))), row["prompt_ids"]
    )


@pytest.mark.parametrize(("finish", "letter"), [(LENGTH, None), (EOS, "C")])
def test_an_answer_that_was_cut_off_states_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finish: str, letter: str | None
) -> None:
    made = draft_engine.continue_trees

    def scripted(lm: LanguageModel, trees: Sequence[Tree], settings: Settings) -> list[list[Continuation]]:
        if settings.max_new_tokens != 40:
            return made(lm, trees, settings)
        answer = Continuation(tuple(encode(lm.tokenizer, "The answer is C. But then")), finish)
        return [[answer for _ in tree.branches] for tree in trees]

    monkeypatch.setattr(draft_engine, "continue_trees", scripted)
    rows = measure(tmp_path, model, {"one": DRAFT}, limits={"answer": 40})
    (row,) = rows["drafts"]
    (standard,) = [one for one in rows["continuations"] if one["answering"] == "standard"]
    assert row["answer_letter"] == standard["conclusion_letter"] == letter
    assert (row["status"], standard["status"]) == ("ok", "ok" if letter else "truncated")
    assert row["answer_text"] == "The answer is C. But then"
    assert bool(row["reason"]) is not bool(letter)


def lengths(model: Path, folder: Path) -> tuple[int, int]:
    """Tokens of the prompt, and of the prompt and the draft together."""
    folder.mkdir()
    (row,) = measure(folder, model, {"one": DRAFT})["drafts"]
    return len(row["prompt_ids"]), len(row["prompt_ids"]) + len(row["draft_ids"])


def test_contexts_that_overflow(tiny_folder: Callable[[str], Path], model: Path, tmp_path: Path) -> None:
    num_prompt, num_both = lengths(model, tmp_path / "roomy")

    def within(context: int) -> dict[str, list[dict[str, Any]]]:
        folder = tmp_path / str(context)
        folder.mkdir()
        small = with_context(tiny_folder("llama"), folder / "model", context)
        rows = measure(folder, small, {"one": DRAFT})
        assert all(row["reason"] for row in rows["continuations"] if row["status"] in ("skipped", "truncated"))
        return rows

    (row,) = within(num_prompt - 1)["drafts"]
    assert (row["status"], row["answer_text"]) == ("skipped", None)
    assert row["reason"] == f"prompt and draft have {num_both} tokens, the model's context holds {num_prompt - 1}"
    (row,) = within(num_both)["drafts"]
    assert row["reason"] == f"prompt and draft have {num_both} tokens, the model's context holds {num_both}"
    # One token more: the draft is measured, but no insertion after it and no answer fits.
    rows = within(num_both + 1)
    (row,) = rows["drafts"]
    assert (row["status"], row["conclusion_letter"], row["answer_text"]) == ("ok", "B", None)
    assert "no answer after the untouched draft: " in row["reason"]
    assert f"leave no room in the context of {num_both + 1}" in row["reason"]
    last = [one for one in rows["continuations"] if one["position"] == "end" or one["dimension"] == "answer"]
    assert {one["status"] for one in last} == {"skipped"}
    assert all(f"leave no room in the context of {num_both + 1}" in one["reason"] for one in last)
    assert len(rows["continuations"]) == 14
    # A continuation that only the context ends is truncated.
    rows = within(num_both + 150)
    statuses = {one["status"] for one in rows["continuations"]}
    assert "truncated" in statuses
    assert len(rows["continuations"]) == 14


def test_an_own_prompt_that_does_not_fit(tiny_folder: Callable[[str], Path], model: Path, tmp_path: Path) -> None:
    num_prompt, _ = lengths(model, tmp_path / "roomy")
    for extra, fits in ((0, False), (1, True)):
        folder = tmp_path / str(extra)
        folder.mkdir()
        small = with_context(tiny_folder("llama"), folder / "model", num_prompt + extra)
        (row,) = measure(folder, small, None)["drafts"]
        assert row["status"] == "skipped"
        assert ("leave no room" in row["reason"]) is not fits


WORDS = "fox den owl tree bear cave sleep warm cold dark night forest animal winter".split()


def long_draft(num_sentences: int) -> str:
    draw = random.Random(0)
    sentences = []
    for number in range(num_sentences):
        words = " ".join(draw.choices(WORDS, k=9))
        sentences.append(f"{'Wait, is the' if number % 7 == 3 else 'The'} {words}.")
    return " ".join([*sentences, "So the answer is B."])


@pytest.mark.slow
def test_a_draft_of_more_than_20000_tokens(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = with_context(tiny_folder("llama"), tmp_path / "model", 65_536)
    text = long_draft(570)
    changes = {
        "interventions": ["shift_mapping"],
        "insertion_types": ["continue"],
        "conclusions": [],
        "limits": {"continuation": 2, "answer": 2},
    }
    rows = measure(tmp_path, model, {"one": text}, **changes)
    (row,) = rows["drafts"]
    assert len(row["draft_ids"]) > 20_000
    assert (row["draft_text"], row["status"], row["conclusion_letter"]) == (text, "ok", "B")
    assert (row["num_cot_steps"], row["num_blocks"]) == (571, 81)
    placed = {one["position"]: one["inserted_at"] for one in rows["continuations"]}
    assert 0 < placed["initial"] < placed["middle"] < placed["end"] == len(row["draft_ids"])
    assert {one["status"] for one in rows["continuations"]} <= {"ok", "truncated"}
